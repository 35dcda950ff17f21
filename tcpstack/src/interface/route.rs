//! Which way to a remote address: routes, source addresses, path MTUs.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeMap;

use super::{Interface, InterfaceError, Route};
use crate::addr::{IpCidr, is_link_local, is_unicast};
use crate::icmp::{IPV4_MTU_MIN, IPV6_MTU_MIN};
use crate::time::Instant;

/// Routes through gateways; a host has few.
const ROUTES_MAX: usize = 256;

/// A route through a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayRoute {
    /// The network behind the gateway.
    pub destination: IpCidr,
    /// A neighbour.
    pub gateway: IpAddr,
}

impl Interface {
    /// Adds a route through a gateway on one of our networks; the longest prefix wins.
    ///
    /// # Errors
    /// See [`InterfaceError`].
    pub fn add_route(&mut self, destination: IpCidr, gateway: IpAddr) -> Result<(), InterfaceError> {
        if !is_unicast(gateway) || self.has_address(gateway) {
            return Err(InterfaceError::NotUnicast);
        }
        if gateway.is_ipv4() != destination.addr().is_ipv4() || !self.is_on_link(gateway) {
            return Err(InterfaceError::GatewayUnreachable);
        }
        let route = GatewayRoute { destination, gateway };
        if self.routes.contains(&route) {
            return Err(InterfaceError::Exists);
        }
        if self.routes.len() >= ROUTES_MAX {
            return Err(InterfaceError::Full);
        }
        self.routes.push(route);
        Ok(())
    }

    /// Removes a route; false when it was not there.
    pub fn remove_route(&mut self, destination: IpCidr, gateway: IpAddr) -> bool {
        let before = self.routes.len();
        self.routes.retain(|route| *route != GatewayRoute { destination, gateway });
        self.routes.len() < before
    }

    /// The routes through gateways.
    pub fn routes(&self) -> impl Iterator<Item = GatewayRoute> {
        self.routes.iter().copied()
    }

    /// How to reach `remote`; `None` when there is no route, or it is not another host.
    pub fn route(&self, remote: IpAddr) -> Option<Route> {
        if !is_unicast(remote) || self.has_address(remote) || self.is_broadcast(remote) {
            return None;
        }
        let on_link = self.network_of(remote);
        let routed = self.routes.iter().filter(|route| route.destination.contains(remote));
        // Among equals the first that was added.
        let routed = routed.rev().max_by_key(|route| route.destination.prefix());
        let (source, next_hop) = match (on_link, routed) {
            (Some(network), None) => (network.addr(), remote),
            (Some(network), Some(route)) if network.prefix() >= route.destination.prefix() => {
                (network.addr(), remote)
            }
            (_, Some(route)) => (self.source_through(route.gateway, remote)?, route.gateway),
            (None, None) => return None,
        };
        let mtu = self.path_mtus.get(remote).unwrap_or(usize::MAX).min(self.mtu);
        Some(Route { source, next_hop, mtu })
    }

    /// Notes a smaller path MTU, after TCP has found the ICMP error credible.
    ///
    /// It is never raised by this, kept within reason, and forgotten after
    /// [`path_mtu_age`](super::InterfaceConfig::path_mtu_age).
    pub fn update_path_mtu(&mut self, remote: IpAddr, mtu: usize, now: Instant) {
        let mtu = mtu.max(if remote.is_ipv4() { IPV4_MTU_MIN } else { IPV6_MTU_MIN });
        if mtu < self.path_mtus.get(remote).unwrap_or(self.mtu) {
            self.counters.path_mtu_lowered += 1;
            self.path_mtus.insert(remote, mtu, now + self.config.path_mtu_age);
        }
    }

    /// Largest IP packet that our own link takes.
    #[inline]
    pub(crate) fn link_mtu(&self) -> usize {
        self.mtu
    }

    /// Whether `addr` is on one of our networks.
    pub(super) fn is_on_link(&self, addr: IpAddr) -> bool {
        self.network_of(addr).is_some()
    }

    /// Our address in the smallest of our networks that has `addr`.
    pub(super) fn network_of(&self, addr: IpAddr) -> Option<IpCidr> {
        let networks = self.locals.iter().map(|local| local.cidr);
        networks.filter(|network| network.contains(addr)).max_by_key(IpCidr::prefix)
    }

    /// Our address to send from through a gateway.
    fn source_through(&self, gateway: IpAddr, remote: IpAddr) -> Option<IpAddr> {
        // A link-local source is no good beyond the link, even if the gateway has one.
        let usable = |addr: IpAddr| {
            addr.is_ipv4() == remote.is_ipv4()
                && (addr.is_ipv4() || !is_link_local(addr) || is_link_local(remote))
        };
        let mut ours = self.locals.iter().map(|local| local.cidr).filter(|cidr| usable(cidr.addr()));
        let near = ours.clone().find(|cidr| cidr.contains(gateway));
        near.or_else(|| ours.next()).map(|cidr| cidr.addr())
    }
}

/// Path MTUs below the link's, for a bounded number of remotes.
#[derive(Debug)]
pub(super) struct PathMtus {
    limit: usize,
    by_remote: BTreeMap<IpAddr, (usize, Instant)>,
    /// When the first may be forgotten; early at worst.
    sweep_at: Option<Instant>,
}

impl PathMtus {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, by_remote: BTreeMap::new(), sweep_at: None }
    }

    fn get(&self, remote: IpAddr) -> Option<usize> {
        self.by_remote.get(&remote).map(|&(mtu, _)| mtu)
    }

    /// When full, the new one is not kept here: TCP still has it for its connection.
    fn insert(&mut self, remote: IpAddr, mtu: usize, until: Instant) {
        if self.by_remote.len() < self.limit || self.by_remote.contains_key(&remote) {
            self.by_remote.insert(remote, (mtu, until));
            self.sweep_at = Some(self.sweep_at.map_or(until, |at| at.min(until)));
        }
    }

    pub(super) fn poll(&mut self, now: Instant) {
        if self.sweep_at.is_none_or(|at| at > now) {
            return;
        }
        self.by_remote.retain(|_, &mut (_, until)| until > now);
        // A sweep costs the whole table, so not for each entry one of its own.
        let next = self.by_remote.values().map(|&(_, until)| until).min();
        self.sweep_at = next.map(|at| at.max(now + Duration::from_secs(1)));
    }

    pub(super) fn poll_at(&self) -> Option<Instant> {
        self.sweep_at
    }
}
