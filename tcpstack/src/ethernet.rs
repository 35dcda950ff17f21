//! Ethernet II framing, with one optional VLAN tag (IEEE 802.1Q).

use smoltcp::wire::{EthernetAddress, EthernetProtocol};

/// Octets of an untagged Ethernet header.
pub const ETHERNET_LEN: usize = 14;
/// Octets that a VLAN tag adds.
pub const VLAN_LEN: usize = 4;

/// The VLAN that an interface is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan(u16);

impl Vlan {
    /// The EtherType that announces a tag.
    pub(crate) const TPID: [u8; 2] = [0x81, 0x00];

    /// The VLAN `id`, or `None` when it is not in 1..=4094.
    pub fn new(id: u16) -> Option<Self> {
        (1..4095).contains(&id).then_some(Self(id))
    }

    /// The VLAN's number.
    pub fn id(self) -> u16 {
        self.0
    }
}

/// Writes a header into the front of `octets`; returns its length.
pub(crate) fn emit_header(
    octets: &mut [u8],
    destination: EthernetAddress,
    source: EthernetAddress,
    vlan: Option<Vlan>,
    ethertype: EthernetProtocol,
) -> usize {
    octets[..6].copy_from_slice(destination.as_bytes());
    octets[6..12].copy_from_slice(source.as_bytes());
    let mut len = ETHERNET_LEN;
    if let Some(vlan) = vlan {
        octets[12..14].copy_from_slice(&Vlan::TPID);
        octets[14..16].copy_from_slice(&vlan.0.to_be_bytes());
        len += VLAN_LEN;
    }
    octets[len - 2..len].copy_from_slice(&u16::from(ethertype).to_be_bytes());
    len
}

/// A received frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EthernetHeader {
    pub(crate) destination: EthernetAddress,
    pub(crate) source: EthernetAddress,
    pub(crate) ethertype: EthernetProtocol,
    /// Octets to take off.
    pub(crate) len: usize,
}

/// Why a frame is dropped here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EthernetError {
    Malformed,
    VlanMismatch,
}

impl EthernetHeader {
    /// Reads the header of a frame that belongs to `vlan`.
    ///
    /// A tag of VLAN 0 carries only a priority and counts as none.
    #[inline]
    pub(crate) fn parse(octets: &[u8], vlan: Option<Vlan>) -> Result<Self, EthernetError> {
        let Some((&[d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1], rest)) =
            octets.split_first_chunk()
        else {
            return Err(EthernetError::Malformed);
        };
        let source = EthernetAddress([s0, s1, s2, s3, s4, s5]);
        if !source.is_unicast() {
            return Err(EthernetError::Malformed);
        }
        let mut header = Self {
            destination: EthernetAddress([d0, d1, d2, d3, d4, d5]),
            source,
            ethertype: u16::from_be_bytes([t0, t1]).into(),
            len: ETHERNET_LEN,
        };
        let mut tag = 0;
        if [t0, t1] == Vlan::TPID {
            let Some(&[v0, v1, t0, t1]) = rest.first_chunk() else {
                return Err(EthernetError::Malformed);
            };
            tag = u16::from_be_bytes([v0, v1]) & 0x0fff;
            header.ethertype = u16::from_be_bytes([t0, t1]).into();
            header.len += VLAN_LEN;
        }
        if tag != vlan.map_or(0, Vlan::id) {
            return Err(EthernetError::VlanMismatch);
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME: [u8; 16] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45, 0];
    const TAGGED: [u8; 19] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0x00, 0xe0, 0x07, 0x86, 0xdd, 0x60];

    #[test]
    fn a_plain_header_is_read() {
        let header = EthernetHeader::parse(&FRAME, None).unwrap();
        assert_eq!(header.destination, EthernetAddress([2, 0, 0, 0, 0, 1]));
        assert_eq!(header.source, EthernetAddress([2, 0, 0, 0, 0, 2]));
        assert_eq!((header.ethertype, header.len), (EthernetProtocol::Ipv4, 14));
    }

    #[test]
    fn a_tag_must_be_the_interface_s() {
        let header = EthernetHeader::parse(&TAGGED, Vlan::new(7)).unwrap();
        assert_eq!((header.ethertype, header.len), (EthernetProtocol::Ipv6, 18));
        assert_eq!(EthernetHeader::parse(&TAGGED, Vlan::new(8)), Err(EthernetError::VlanMismatch));
        assert_eq!(EthernetHeader::parse(&TAGGED, None), Err(EthernetError::VlanMismatch));
        assert_eq!(EthernetHeader::parse(&FRAME, Vlan::new(7)), Err(EthernetError::VlanMismatch));
    }

    #[test]
    fn a_priority_tag_counts_as_none() {
        let mut frame = TAGGED;
        frame[15] = 0;
        assert_eq!(EthernetHeader::parse(&frame, None).unwrap().len, 18);
    }

    #[test]
    fn what_is_cut_off_is_malformed() {
        for len in 0..ETHERNET_LEN {
            assert_eq!(EthernetHeader::parse(&FRAME[..len], None), Err(EthernetError::Malformed));
        }
        for len in 0..ETHERNET_LEN + VLAN_LEN {
            assert_eq!(EthernetHeader::parse(&TAGGED[..len], Vlan::new(7)), Err(EthernetError::Malformed));
        }
    }

    #[test]
    fn a_group_is_no_source() {
        let mut frame = FRAME;
        frame[6] |= 1;
        assert_eq!(EthernetHeader::parse(&frame, None), Err(EthernetError::Malformed));
    }

    #[test]
    fn vlan_numbers_have_bounds() {
        assert_eq!(Vlan::new(0), None);
        assert_eq!(Vlan::new(4095), None);
        assert_eq!(Vlan::new(4094).map(Vlan::id), Some(4094));
    }

    #[test]
    fn a_written_header_is_read_back() {
        for vlan in [None, Vlan::new(7)] {
            let mut octets = [0; ETHERNET_LEN + VLAN_LEN];
            let (destination, source) = (EthernetAddress([2; 6]), EthernetAddress([4; 6]));
            let len = emit_header(&mut octets, destination, source, vlan, EthernetProtocol::Arp);
            let expected = EthernetHeader { destination, source, ethertype: EthernetProtocol::Arp, len };
            assert_eq!(EthernetHeader::parse(&octets[..len], vlan), Ok(expected));
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_survived(octets in prop::collection::vec(any::<u8>(), 0..32), id in 0u16..5000) {
            let _ = EthernetHeader::parse(&octets, Vlan::new(id));
        }
    }
}
