//! Counters by name: plain fields for the owner, an iterator for whoever reports them.

/// Declares a struct of `u64` counters with an iterator over their names and values.
macro_rules! counters {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: u64,)*
        }

        impl $name {
            /// Name and value of each counter, in the order of their declaration.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
        }
    };
}
pub(crate) use counters;

counters! {
    /// What an [`Interface`](crate::interface::Interface) saw, and why it dropped what it dropped.
    pub struct InterfaceCounters {
        /// Frames given to the interface.
        frames_received,
        /// Dropped: no whole Ethernet header, or one that is no unicast source.
        ethernet_malformed,
        /// Dropped: for another station, or for a group that we are not in.
        ethernet_not_ours,
        /// Dropped: no VLAN tag where one is due, another VLAN's, or a tag where none is due.
        vlan_mismatch,
        /// Dropped: an EtherType that is not spoken here.
        ethertype_unknown,
        /// Dropped: malformed ARP packets.
        arp_malformed,
        /// ARP requests for one of our addresses, answered.
        arp_requests_answered,
        /// ARP packets taken note of or ignored, but not answered.
        arp_other,
        /// ARP and Neighbor Solicitation packets sent to find or probe a neighbour.
        neighbor_requests_sent,
        /// Announcements of our own addresses sent.
        announcements_sent,
        /// Neighbours given up after all retries.
        neighbor_unreachable,
        /// Neighbours whose Ethernet address changed.
        neighbor_changed,
        /// Neighbours forgotten to make room for another.
        neighbor_evicted,
        /// Neighbours not taken up because the table was full of used ones.
        neighbor_table_full,
        /// Packets from another station that claims one of our addresses.
        duplicate_address,
        /// Dropped: malformed IPv4 headers.
        ipv4_malformed,
        /// Dropped: IPv4 headers with a wrong checksum.
        ipv4_checksum_bad,
        /// Dropped: IPv4 fragments (there is no reassembly).
        ipv4_fragment,
        /// Dropped: malformed IPv6 headers or extension headers.
        ipv6_malformed,
        /// Dropped: IPv6 fragments (there is no reassembly).
        ipv6_fragment,
        /// Dropped: IPv6 packets with an option or routing header that must be understood.
        ipv6_option_unknown,
        /// Dropped: from a source address that cannot be one.
        ip_source_invalid,
        /// Dropped: for an IP address that is not ours.
        ip_not_ours,
        /// Dropped: a protocol that is not spoken here.
        protocol_unknown,
        /// Dropped: malformed ICMP packets, or ones with a wrong checksum.
        icmp_malformed,
        /// ICMP packets of a kind that asks for nothing.
        icmp_other,
        /// Echo requests answered.
        icmp_echo_answered,
        /// Echo requests not answered because of the rate limit.
        icmp_rate_limited,
        /// ICMP errors about our TCP segments, handed up.
        icmp_errors_received,
        /// Dropped: Neighbor Discovery packets that fail the checks of RFC 4861.
        ndp_malformed,
        /// Neighbor Solicitations for one of our addresses, answered.
        ndp_requests_answered,
        /// Neighbor Discovery packets taken note of or ignored, but not answered.
        ndp_other,
        /// Path MTUs noted.
        path_mtu_lowered,
        /// Replies not sent: no frame could be had for them.
        reply_no_frame,
        /// Replies not sent: the transmit queue was full.
        reply_queue_full,
        /// TCP segments handed up.
        tcp_received,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_fields() {
        let counters = InterfaceCounters { frames_received: 3, tcp_received: 2, ..Default::default() };
        assert_eq!(counters.iter().next(), Some(("frames_received", 3)));
        assert_eq!(counters.iter().last(), Some(("tcp_received", 2)));
    }
}
