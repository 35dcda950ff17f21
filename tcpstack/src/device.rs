//! What the stack needs of a port: frames that own their buffer, and bursts of them.
//!
//! The engine implements these traits over DPDK (`dataplane::port`), the simulator over
//! plain memory (feature `sim`). A [`Frame`] shows a *window* on its buffer, with headroom
//! in front of it and tailroom behind, so that headers are put on and taken off without a copy:
//!
//! ```text
//! |<- headroom ->|<------- bytes() ------->|<- tailroom ->|
//! ```

use arrayvec::ArrayVec;

/// Most frames that one call receives or transmits.
pub const BURST_MAX: usize = 32;

/// Octets in front of a fresh frame's window: room for Ethernet (14), one VLAN tag (4),
/// IPv6 (40) and a TCP header with all its options (60).
pub const HEADROOM: usize = 128;

/// A bounded batch of frames.
pub type Burst<F> = ArrayVec<F, BURST_MAX>;

/// A frame that owns its buffer and gives it back when dropped.
pub trait Frame: Sized {
    /// A second reference to the same octets; see [`Frame::hold`].
    type Held: Held<Frame = Self>;

    /// The octets in the window.
    fn bytes(&self) -> &[u8];

    /// The octets in the window, to be written.
    ///
    /// # Panics
    /// When the buffer is held elsewhere ([`Frame::hold`]).
    fn bytes_mut(&mut self) -> &mut [u8];

    /// Octets by which the window can grow at its front.
    fn headroom(&self) -> usize;

    /// Octets by which the window can grow at its back.
    fn tailroom(&self) -> usize;

    /// Grows the window by `len` octets at the front; their content is unspecified.
    ///
    /// # Panics
    /// When `len` exceeds the headroom.
    fn push_front(&mut self, len: usize);

    /// Takes `len` octets off the window's front.
    ///
    /// # Panics
    /// When `len` exceeds the window.
    fn trim_front(&mut self, len: usize);

    /// Grows the window by `len` octets at the back; their content is unspecified.
    ///
    /// # Panics
    /// When `len` exceeds the tailroom.
    fn push_back(&mut self, len: usize);

    /// Shortens the window to `len` octets; does nothing when it is shorter already.
    fn truncate(&mut self, len: usize);

    /// A second reference that remembers this window less its first `skip` octets.
    ///
    /// The sender of a reliable protocol keeps it until the octets are acknowledged, while
    /// the frame itself goes to the device. The octets do not change as long as it lives.
    ///
    /// # Panics
    /// When `skip` exceeds the window.
    fn hold(&self, skip: usize) -> Self::Held;

    /// What the port found out about the IP and TCP checksums of a received frame.
    fn checksum_status(&self) -> ChecksumStatus;

    /// Asks the port to fill in checksums on transmission; only for ports whose
    /// [`Capabilities`] offer it. The TCP checksum field then holds the pseudo-header sum.
    fn request_checksum(&mut self, layout: ChecksumLayout);
}

/// A reference to octets that were sent and may have to be sent again.
pub trait Held: Sized {
    /// The frame this was made from.
    type Frame: Frame;

    /// The remembered octets.
    fn bytes(&self) -> &[u8];

    /// The frame back, with the remembered window, when nobody else (NIC, peer) uses it any more.
    ///
    /// # Errors
    /// Itself, while the buffer is in use elsewhere.
    fn reclaim(self) -> Result<Self::Frame, Self>;
}

/// A port's verdict on the checksums of a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumStatus {
    /// The port did not look; software has to.
    #[default]
    Unknown,
    /// The TCP checksum (and the IPv4 header's) is good.
    Good,
    /// One of them is bad.
    Bad,
}

/// Where the checksums of a frame to be sent are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumLayout {
    /// Octets of the link header.
    pub link_len: u8,
    /// Octets of the IP header.
    pub network_len: u8,
    /// Octets of the TCP header.
    pub transport_len: u8,
    /// Whether the IP header is version 6 (no header checksum of its own).
    pub ipv6: bool,
}

/// What a device can do, fixed while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The port's Ethernet address.
    pub mac: [u8; 6],
    /// Largest IP packet, in octets (the link header comes on top).
    pub mtu: usize,
    /// Whether the port verifies IPv4 and TCP checksums and says so per frame.
    pub receive_checksum: bool,
    /// Whether the port fills in IPv4 and TCP checksums on request.
    pub transmit_checksum: bool,
}

/// A queue pair of a port: bursts in, bursts out, and fresh frames.
pub trait Device {
    /// The frames of this device.
    type Frame: Frame;

    /// Appends received frames to `frames`, as many as there are and as fit.
    fn receive_burst(&mut self, frames: &mut Burst<Self::Frame>);

    /// Hands frames to the port, in order; the ones that it does not take now stay in `frames`.
    fn transmit_burst(&mut self, frames: &mut Burst<Self::Frame>);

    /// An empty frame (window of no octets, [`HEADROOM`] in front) for payload, or `None`
    /// when the budget for it is used up.
    fn allocate(&mut self) -> Option<Self::Frame>;

    /// The same from the reserve for control traffic (ARP, ICMP, SYN, ACK, RST).
    fn allocate_control(&mut self) -> Option<Self::Frame>;

    /// What the device can do.
    fn capabilities(&self) -> &Capabilities;
}
