//! What TCP saw, sent and dropped.

use crate::counters::counters;

counters! {
    /// Counters of a [`Stack`](crate::stack::Stack)'s TCP.
    pub struct TcpCounters {
        /// Segments received with a good header and checksum.
        segments_received,
        /// Segments sent, retransmissions included.
        segments_sent,
        /// Octets of data received in order.
        octets_received,
        /// Octets of data sent, retransmissions included.
        octets_sent,
        /// Segments sent again.
        retransmissions,
        /// Retransmission timeouts.
        timeouts,
        /// Records found to be lost by RACK.
        rack_lost,
        /// Loss probes sent: nobody had answered for two round trips.
        tail_probes,
        /// Losses repaired by a loss probe.
        tail_losses_repaired,
        /// Losses repaired by fast recovery.
        fast_recoveries,
        /// Fast recoveries that turned out to be none, taken back.
        spurious_recoveries,
        /// Timeouts that turned out to be none, taken back.
        spurious_timeouts,
        /// D-SACKs received: segments of ours that arrived twice.
        arrived_twice,
        /// Windows reduced for congestion marks that the peer echoed.
        ecn_reductions,
        /// Data segments received with a congestion mark.
        ecn_marks_received,
        /// Window probes sent.
        window_probes,
        /// Keep-alive probes sent.
        keepalive_probes,
        /// ACKs sent that carried nothing else.
        acks_sent,
        /// Challenge ACKs sent.
        challenge_acks,
        /// Challenge ACKs not sent because of their limit.
        challenge_acks_limited,
        /// Resets sent.
        resets_sent,
        /// Resets not sent: their limit, or no frame or room for them.
        resets_limited,
        /// Connections reset by the peer.
        resets_received,
        /// Active opens.
        opened,
        /// Passive opens that were completed.
        accepted,
        /// Connections ended, for whatever reason.
        closed,
        /// Connections given up in FIN-WAIT-2: let go of, and never closed by the peer.
        fin_wait_2_timeouts,
        /// Connections let go of and reset: the peer's data were lost, or there were too many.
        orphans_reset,
        /// Active opens that found no free port.
        ports_exhausted,
        /// TIME-WAIT states cut short to make room or for a new connection.
        time_wait_recycled,
        /// Dropped: no whole TCP header.
        malformed,
        /// Dropped: a wrong checksum.
        checksum_bad,
        /// Dropped: segments of no connection and for no listener.
        no_connection,
        /// Dropped: SYNs beyond a listener's backlog.
        backlog_full,
        /// Dropped: SYNs beyond the half-open table or the connection table.
        half_open_full,
        /// Half-open connections given up: nobody acknowledged the SYN,ACK.
        half_open_expired,
        /// SYNs answered with a cookie.
        syn_cookies_sent,
        /// Connections made by a cookie.
        syn_cookies_accepted,
        /// Acknowledgments that could have been one of a cookie and were not.
        syn_cookies_failed,
        /// Dropped: SYNs beyond the limit of their source.
        source_limited,
        /// Dropped: segments outside of the receive window.
        out_of_window,
        /// Dropped: segments with an acknowledgment that cannot be.
        ack_unacceptable,
        /// Dropped: segments older than the last timestamp (PAWS).
        paws,
        /// Dropped: segments without the timestamps that were agreed on.
        timestamps_missing,
        /// Dropped: segments whose data had come before.
        duplicates,
        /// Segments kept beyond a gap.
        early_kept,
        /// Dropped: segments beyond a gap that found no room.
        early_dropped,
        /// Dropped: segments in order that the application left no room for.
        receive_queue_full,
        /// Times that no frame could be had.
        no_frame,
        /// ICMP errors about no segment in flight.
        icmp_ignored,
        /// ICMP errors noted but not acted on.
        icmp_soft_errors,
        /// Path MTU reductions taken from ICMP.
        path_mtu_reduced,
        /// Times that segments became shorter because long ones got lost again and again.
        black_holes,
        /// Segments sent to see whether the path takes their length.
        path_probes,
        /// Those that arrived: the path takes longer segments than it was believed to.
        path_probes_passed,
        /// Those that were lost.
        path_probes_lost,
    }
}
