//! Settings and addresses of a connection in fewer octets than their usual types take.

use core::net::{IpAddr, SocketAddr};
use core::num::NonZero;
use core::time::Duration;

use crate::config::Keepalive;

/// An address and a port: a [`SocketAddr`] without flow label and scope, 20 octets instead of 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    ip: IpAddr,
    port: u16,
}

impl Endpoint {
    /// The address.
    #[inline]
    pub(crate) fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The port.
    #[inline]
    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(socket: SocketAddr) -> Self {
        Self { ip: socket.ip(), port: socket.port() }
    }
}

impl From<Endpoint> for SocketAddr {
    fn from(endpoint: Endpoint) -> Self {
        Self::new(endpoint.ip, endpoint.port)
    }
}

/// A span of at least one and at most 2^32 - 1 milliseconds (49 days); `Option` of it is as small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Millis(NonZero<u32>);

impl Millis {
    /// The nearest span within the bounds, rounded up.
    pub(crate) fn of(span: Duration) -> Self {
        let millis = span.as_nanos().div_ceil(1_000_000);
        let millis = u32::try_from(millis).unwrap_or(u32::MAX);
        Self(NonZero::new(millis).unwrap_or(NonZero::<u32>::MIN))
    }

    /// The span.
    pub(crate) fn span(self) -> Duration {
        Duration::from_millis(u64::from(self.0.get()))
    }
}

/// A [`Keepalive`], 12 octets instead of 40.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeepaliveTimes {
    idle: Millis,
    interval: Millis,
    pub(crate) probes: u8,
}

impl KeepaliveTimes {
    /// How long nothing must have been heard before the first probe.
    pub(crate) fn idle(self) -> Duration {
        self.idle.span()
    }

    /// From a probe to the next one.
    pub(crate) fn interval(self) -> Duration {
        self.interval.span()
    }
}

impl From<Keepalive> for KeepaliveTimes {
    fn from(keepalive: Keepalive) -> Self {
        let Keepalive { idle, interval, probes } = keepalive;
        Self { idle: Millis::of(idle), interval: Millis::of(interval), probes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_ones_are_small_and_say_the_same() {
        let socket = SocketAddr::from(([192, 0, 2, 1], 80));
        assert_eq!(SocketAddr::from(Endpoint::from(socket)), socket);
        let keepalive = Keepalive::default();
        let times = KeepaliveTimes::from(keepalive);
        assert_eq!((times.idle(), times.interval()), (keepalive.idle, keepalive.interval));
        assert_eq!((size_of::<Endpoint>(), size_of::<Option<KeepaliveTimes>>()), (20, 12));
    }

    #[test]
    fn milliseconds_are_rounded_up_within_their_bounds() {
        let of = |span| Millis::of(span).span();
        assert_eq!(of(Duration::ZERO), Duration::from_millis(1));
        assert_eq!(of(Duration::from_micros(1001)), Duration::from_millis(2));
        assert_eq!(of(Duration::MAX), Duration::from_millis(u64::from(u32::MAX)));
    }
}
