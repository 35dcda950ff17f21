//! The answers to `show`.

use std::collections::BTreeMap;
use std::fmt::Write;

use dataplane::port::dpdk::{Port, PortStats};
use dataplane::worker::{ConnectionSummary, Query, Reply};

use super::Appliance;
use super::running::{Running, RunningService, RunningWorker};
use crate::commands::{PortSelector, Show};
use crate::plan::Plan;
use crate::services::ServiceState;
use crate::services::perf::Notice;

impl Appliance {
    /// The text that `show` prints.
    pub(super) fn show(&self, show: Show) -> Result<String, String> {
        let Some(running) = &self.running else {
            return match show {
                Show::PortInfo(ports) => self.closed_ports(ports),
                Show::Config => Ok(self.plan.to_string()),
                _ => Err("the poll cores do not run; `start` first".to_owned()),
            };
        };
        match show {
            Show::PortInfo(ports) => {
                running.each_port(ports, |port, text| running.port_info(port, &self.plan, text))
            }
            Show::PortStats(ports) => running.each_port(ports, |port, text| running.port_stats(port, text)),
            Show::PortXstats(ports) => running.each_port(ports, |port, text| {
                let counters = port.xstats();
                pairs(text, counters.iter().map(|(name, count)| (name.as_str(), count.to_string())));
                Ok(())
            }),
            Show::Config => Ok(self.plan.to_string()),
            Show::Connections => running.connections(),
            Show::Listeners => running.listeners(),
            Show::Memory => running.memory(),
            Show::Services => Ok(running.services()),
            Show::IwarpStats => running.iwarp_stats(),
        }
    }

    fn closed_ports(&self, ports: PortSelector) -> Result<String, String> {
        let mut text = String::new();
        for (port, name) in self.eal.port_names().into_iter().filter(|(port, _)| ports.selects(*port)) {
            let _ = writeln!(text, "port {port}: {name}, idle until `start`");
        }
        if text.is_empty() { Err(no_such_port(ports)) } else { Ok(text) }
    }
}

impl Running {
    fn each_port(
        &self,
        ports: PortSelector,
        mut show: impl FnMut(&Port, &mut String) -> Result<(), String>,
    ) -> Result<String, String> {
        let mut text = String::new();
        for port in self.ports.iter().map(|open| &open.port).filter(|port| ports.selects(port.id())) {
            let _ = writeln!(text, "port {}: {}", port.id(), port.name());
            show(port, &mut text)?;
        }
        if text.is_empty() { Err(no_such_port(ports)) } else { Ok(text) }
    }

    fn port_info(&self, port: &Port, plan: &Plan, text: &mut String) -> Result<(), String> {
        let skip = ["Port", "Name"];
        pairs(text, port.info().into_iter().filter(|(name, _)| !skip.contains(name)));
        if let Some(plan) = plan.port(port.id()) {
            pairs(text, plan.addresses.iter().map(|address| ("Address", address.to_string())));
            let route =
                |route: &crate::plan::RoutePlan| format!("{} via {}", route.destination, route.gateway);
            pairs(text, plan.routes.iter().map(|it| ("Route", route(it))));
        }
        let queues = self.workers.iter().filter(|worker| worker.port == port.id());
        pairs(text, queues.map(|worker| ("Queue", format!("{} on lcore {}", worker.queue, worker.lcore))));
        Ok(())
    }

    fn port_stats(&self, port: &Port, text: &mut String) -> Result<(), String> {
        let PortStats {
            received_frames,
            received_octets,
            missed,
            receive_errors,
            no_mbuf,
            transmitted_frames,
            transmitted_octets,
            transmit_errors,
        } = port.stats();
        let device = [
            ("received_frames", received_frames),
            ("received_octets", received_octets),
            ("missed", missed),
            ("receive_errors", receive_errors),
            ("no_mbuf", no_mbuf),
            ("transmitted_frames", transmitted_frames),
            ("transmitted_octets", transmitted_octets),
            ("transmit_errors", transmit_errors),
        ];
        pairs(text, device.map(|(name, count)| (name, count.to_string())));
        let workers = self.workers.iter().filter(|worker| worker.port == port.id());
        let counters = sum_of_counters(workers)?;
        pairs(text, layer(&counters, "interface"));
        Ok(())
    }

    fn iwarp_stats(&self) -> Result<String, String> {
        let counters = sum_of_counters(self.workers.iter())?;
        let mut text = String::new();
        let mut last = "";
        for (name, _) in counters.keys().filter(|(name, _)| *name != "interface") {
            if *name != last {
                let _ = writeln!(text, "{name}");
                pairs(&mut text, layer(&counters, name));
                last = name;
            }
        }
        Ok(text)
    }

    fn connections(&self) -> Result<String, String> {
        let mut rows = vec![
            ["port", "qp", "local", "remote", "phase", "mpa", "ird/ord", "srtt", "rto", "cwnd", "resent"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for worker in &self.workers {
            let Reply::Connections(connections) = ask(worker, Query::Connections)? else { continue };
            rows.extend(connections.iter().map(|connection| connection_row(worker, connection)));
        }
        Ok(table(&rows))
    }

    fn listeners(&self) -> Result<String, String> {
        let mut rows = vec![["port", "queue", "listener", "local"].map(str::to_owned).to_vec()];
        for worker in &self.workers {
            let Reply::Listeners(listeners) = ask(worker, Query::Listeners)? else { continue };
            rows.extend(listeners.iter().map(|listener| {
                let id = listener.listener.0.to_string();
                vec![worker.port.to_string(), worker.queue.to_string(), id, listener.local.to_string()]
            }));
        }
        Ok(table(&rows))
    }

    fn memory(&self) -> Result<String, String> {
        let header = ["port", "queue", "stag", "domain", "octets", "rights"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        for worker in &self.workers {
            let Reply::Regions(regions) = ask(worker, Query::Regions)? else { continue };
            rows.extend(regions.iter().map(|region| {
                let rights = [
                    (region.rights.local_write, "local-write"),
                    (region.rights.remote_write, "remote-write"),
                    (region.rights.remote_read, "remote-read"),
                    (region.invalidated, "invalidated"),
                ];
                let rights: Vec<&str> =
                    rights.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
                vec![
                    worker.port.to_string(),
                    worker.queue.to_string(),
                    region.stag.to_string(),
                    format!("{}.{}", region.domain.0 >> 32, region.domain.0 & u64::from(u32::MAX)),
                    region.len.to_string(),
                    if rights.is_empty() { "local-read".to_owned() } else { rights.join(",") },
                ]
            }));
        }
        Ok(table(&rows))
    }

    fn services(&self) -> String {
        let mut text = String::new();
        for service in &self.services {
            let RunningService { kind, local, port, queue, supervision, counters, notices } = service;
            let state = match supervision.state() {
                ServiceState::Starting => "starting",
                ServiceState::Listening => "listening",
                ServiceState::Failed => "failed",
                ServiceState::Stopped => "stopped",
            };
            let _ = writeln!(text, "{} {local} (port {port} queue {queue}): {state}", kind.word());
            pairs(&mut text, counters.iter().map(|(name, count)| (name, count.to_string())));
            for notice in notices.iter().flat_map(|notices| notices.try_iter()) {
                let _ = match notice {
                    Notice::Broken(error) => writeln!(text, "  a connection was aborted: {error}"),
                    Notice::Lost(reason) => writeln!(text, "  a connection was lost: {reason}"),
                };
            }
        }
        text
    }
}

fn connection_row(worker: &RunningWorker, connection: &ConnectionSummary) -> Vec<String> {
    let unknown = || "-".to_owned();
    let mut row =
        vec![worker.port.to_string(), format!("{}.{}", connection.qp.index, connection.qp.generation)];
    match &connection.tcp {
        Some(tcp) => row.extend([tcp.local.to_string(), tcp.remote.to_string()]),
        None => row.extend([unknown(), unknown()]),
    }
    row.push(connection.phase.to_owned());
    match &connection.negotiated {
        Some(mpa) => {
            let crc = if mpa.crc { ",crc" } else { "" };
            let markers = if mpa.send_markers || mpa.receive_markers { ",markers" } else { "" };
            row.extend([format!("{}{crc}{markers}", mpa.revision), format!("{}/{}", mpa.ird, mpa.ord)]);
        }
        None => row.extend([unknown(), unknown()]),
    }
    match &connection.tcp {
        Some(tcp) => row.extend([
            tcp.srtt.map_or_else(unknown, |srtt| format!("{srtt:?}")),
            format!("{:?}", tcp.rto),
            tcp.cwnd.to_string(),
            tcp.retransmits.to_string(),
        ]),
        None => row.extend([unknown(), unknown(), unknown(), unknown()]),
    }
    row
}

type Counters = BTreeMap<(&'static str, &'static str), u64>;

fn sum_of_counters<'a>(workers: impl Iterator<Item = &'a RunningWorker>) -> Result<Counters, String> {
    let mut sum = Counters::new();
    for worker in workers {
        let Reply::Counters(counters) = ask(worker, Query::Counters)? else { continue };
        for (layer, name, count) in counters {
            *sum.entry((layer, name)).or_default() += count;
        }
    }
    Ok(sum)
}

fn layer<'a>(counters: &'a Counters, wanted: &'a str) -> impl Iterator<Item = (&'static str, String)> + 'a {
    let found = counters.iter().filter(move |((layer, _), _)| *layer == wanted);
    found.map(|((_, name), count)| (*name, count.to_string()))
}

fn ask(worker: &RunningWorker, query: Query) -> Result<Reply, String> {
    worker.handle.query(query).map_err(|error| format!("lcore {}: {error}", worker.lcore))
}

fn no_such_port(ports: PortSelector) -> String {
    match ports {
        PortSelector::One(port) => format!("there is no port {port}; see `show port info all`"),
        PortSelector::All => "there is no port".to_owned(),
    }
}

/// Name and value, one pair a line.
fn pairs<'a>(text: &mut String, pairs: impl IntoIterator<Item = (&'a str, String)>) {
    for (name, value) in pairs {
        let _ = writeln!(text, "  {name:<28} {value}");
    }
}

/// Columns as wide as their widest cell.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "bb".to_owned()], vec!["ccc".to_owned(), "d".to_owned()]];
        assert_eq!(table(&rows), "a    bb\nccc  d\n");
        assert_eq!(table(&[]), "");
    }
}
