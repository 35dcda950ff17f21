//! Follows a file's commands without starting anything: what `--check` does, and every start does first.

use std::path::Path;

use crate::commands::{Command, PortSelector};
use crate::config::{self, ConfigError, Line, Location, Script};
use crate::eal;
use crate::plan::{Plan, PlanError, ServicePlan};

/// Reads a file and follows its commands.
///
/// # Errors
/// Everything that is wrong with it and the files it loads.
pub fn file(file: &Path) -> Result<Script, Vec<ConfigError>> {
    let script = config::read(file)?;
    let ports = eal::ports(&script.eal);
    let addresses =
        script.address_lines.iter().zip(&script.app.address).map(|(location, (port, address))| {
            let command = Command::AddAddress { port: *port, address: *address };
            Line { location: location.clone(), command }
        });
    let mut walk =
        Walk { ports: ports.as_deref(), plan: Plan::default(), services: Vec::new(), errors: Vec::new() };
    for line in addresses.chain(script.commands.iter().cloned()) {
        if let Err(error) = walk.follow(&line) {
            walk.errors.push(ConfigError::Plan { location: line.location, error });
        }
    }
    walk.check_services();
    if walk.errors.is_empty() { Ok(script) } else { Err(walk.errors) }
}

/// The state after the lines so far.
struct Walk<'a> {
    /// The ports that there will be, if the file decides that.
    ports: Option<&'a [String]>,
    plan: Plan,
    /// Where each of the plan's services was asked for.
    services: Vec<Location>,
    errors: Vec<ConfigError>,
}

impl Walk<'_> {
    fn follow(&mut self, Line { location, command }: &Line) -> Result<(), PlanError> {
        if let (Some(ports), Some(port)) = (self.ports, command.port())
            && usize::from(port) >= ports.len()
        {
            return Err(PlanError::NoPortMade { port, ports: ports.to_vec() });
        }
        // The services of the plan and their places keep step.
        let place = match command {
            Command::StopService { kind, local } => {
                self.plan.services().iter().position(|it| it.is(*kind, *local))
            }
            _ => None,
        };
        self.plan.apply(command)?;
        match (command, place) {
            (Command::StartService(_), _) => self.services.push(location.clone()),
            (_, Some(place)) => drop(self.services.remove(place)),
            _ => {}
        }
        Ok(())
    }

    /// At the end of the file each service has a port with its address.
    fn check_services(&mut self) {
        for (location, ServicePlan { request, .. }) in self.services.iter().zip(self.plan.services()) {
            let address = request.local.ip();
            let mut addresses = self
                .plan
                .ports()
                .filter(|(port, _)| request.ports.selects(*port))
                .flat_map(|(_, port)| &port.addresses);
            if !address.is_unspecified() && !addresses.any(|known| known.addr() == address) {
                let port = match request.ports {
                    PortSelector::One(port) => Some(port),
                    PortSelector::All => None,
                };
                let error = PlanError::NoSuchListenAddress { address, port };
                self.errors.push(ConfigError::Plan { location: location.clone(), error });
            }
        }
    }
}
