/*
 * DPDK's inline functions and macros under names that a linker can find, and facts about its
 * structures that differ between releases (22.11 .. 24.11): where newer ones nest a field in an
 * unnamed union, its offset is still found by its name.
 */
#ifndef IW_SHIM_H
#define IW_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include <rte_alarm.h>
#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_version.h>

/* Fields of struct rte_mbuf that are read or written once a packet, hence without a call. */
enum iw_mbuf_offset {
	IW_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	IW_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	IW_MBUF_REFCNT = offsetof(struct rte_mbuf, refcnt),
	IW_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	IW_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	IW_MBUF_PACKET_TYPE = offsetof(struct rte_mbuf, packet_type),
	IW_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	IW_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	IW_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	IW_MBUF_NEXT = offsetof(struct rte_mbuf, next),
};

/* Their widths: the Rust side asserts that they are what it reads. */
enum iw_mbuf_width {
	IW_MBUF_DATA_OFF_WIDTH = sizeof(((struct rte_mbuf *)0)->data_off),
	IW_MBUF_REFCNT_WIDTH = sizeof(((struct rte_mbuf *)0)->refcnt),
	IW_MBUF_NB_SEGS_WIDTH = sizeof(((struct rte_mbuf *)0)->nb_segs),
	IW_MBUF_OL_FLAGS_WIDTH = sizeof(((struct rte_mbuf *)0)->ol_flags),
	IW_MBUF_PACKET_TYPE_WIDTH = sizeof(((struct rte_mbuf *)0)->packet_type),
	IW_MBUF_PKT_LEN_WIDTH = sizeof(((struct rte_mbuf *)0)->pkt_len),
	IW_MBUF_DATA_LEN_WIDTH = sizeof(((struct rte_mbuf *)0)->data_len),
	IW_MBUF_BUF_LEN_WIDTH = sizeof(((struct rte_mbuf *)0)->buf_len),
};

enum iw_size {
	IW_MBUF_HEADROOM = RTE_PKTMBUF_HEADROOM,
	IW_MBUF_SIZE = sizeof(struct rte_mbuf),
	IW_MAX_LCORE = RTE_MAX_LCORE,
	IW_MEMPOOL_CACHE_MAX = RTE_MEMPOOL_CACHE_MAX_SIZE,
	IW_RETA_GROUP = RTE_ETH_RETA_GROUP_SIZE,
};

/* Macros that bindgen cannot evaluate. */
static const uint64_t IW_MBUF_F_INDIRECT = RTE_MBUF_F_INDIRECT;
static const uint64_t IW_MBUF_F_EXTERNAL = RTE_MBUF_F_EXTERNAL;
static const uint64_t IW_RX_IP_CKSUM_MASK = RTE_MBUF_F_RX_IP_CKSUM_MASK;
static const uint64_t IW_RX_IP_CKSUM_BAD = RTE_MBUF_F_RX_IP_CKSUM_BAD;
static const uint64_t IW_RX_IP_CKSUM_GOOD = RTE_MBUF_F_RX_IP_CKSUM_GOOD;
static const uint64_t IW_RX_IP_CKSUM_NONE = RTE_MBUF_F_RX_IP_CKSUM_NONE;
static const uint64_t IW_RX_L4_CKSUM_MASK = RTE_MBUF_F_RX_L4_CKSUM_MASK;
static const uint64_t IW_RX_L4_CKSUM_BAD = RTE_MBUF_F_RX_L4_CKSUM_BAD;
static const uint64_t IW_RX_L4_CKSUM_GOOD = RTE_MBUF_F_RX_L4_CKSUM_GOOD;
static const uint64_t IW_RX_L4_CKSUM_NONE = RTE_MBUF_F_RX_L4_CKSUM_NONE;
static const uint64_t IW_TX_IPV4 = RTE_MBUF_F_TX_IPV4;
static const uint64_t IW_TX_IPV6 = RTE_MBUF_F_TX_IPV6;
static const uint64_t IW_TX_IP_CKSUM = RTE_MBUF_F_TX_IP_CKSUM;
static const uint64_t IW_TX_TCP_CKSUM = RTE_MBUF_F_TX_TCP_CKSUM;
static const uint32_t IW_PTYPE_L3_MASK = RTE_PTYPE_L3_MASK;
static const uint32_t IW_PTYPE_L3_IPV6 = RTE_PTYPE_L3_IPV6;
static const uint64_t IW_ETH_RX_IPV4_CKSUM = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
static const uint64_t IW_ETH_RX_TCP_CKSUM = RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
static const uint64_t IW_ETH_RX_SCATTER = RTE_ETH_RX_OFFLOAD_SCATTER;
static const uint64_t IW_ETH_RX_RSS_HASH = RTE_ETH_RX_OFFLOAD_RSS_HASH;
static const uint64_t IW_ETH_TX_IPV4_CKSUM = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
static const uint64_t IW_ETH_TX_TCP_CKSUM = RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
static const uint64_t IW_RSS_TCP = RTE_ETH_RSS_NONFRAG_IPV4_TCP | RTE_ETH_RSS_NONFRAG_IPV6_TCP;
static const uint32_t IW_MQ_RX_NONE = RTE_ETH_MQ_RX_NONE;
static const uint32_t IW_MQ_RX_RSS = RTE_ETH_MQ_RX_RSS;
static const uint32_t IW_PORT_MAX = RTE_MAX_ETHPORTS;
static const uint32_t IW_RING_SPSC = RING_F_SP_ENQ | RING_F_SC_DEQ;
static const int IW_SOCKET_ANY = SOCKET_ID_ANY;

struct iw_link {
	uint32_t speed_mbps;
	uint8_t up;
	uint8_t full_duplex;
};

int iw_errno(void);
uint32_t iw_lcore_id(void);
uint64_t iw_tsc(void);

uint16_t iw_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t iw_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
int iw_eth_link(uint16_t port, struct iw_link *link);

struct rte_mbuf *iw_pktmbuf_alloc(struct rte_mempool *pool);
int iw_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t count);
/* Gives back one reference of a whole packet, or of one segment that stands alone. */
void iw_pktmbuf_free(struct rte_mbuf *mbuf);
void iw_pktmbuf_free_seg(struct rte_mbuf *mbuf);
/* Takes one more reference. */
void iw_mbuf_hold(struct rte_mbuf *mbuf);
/* Metadata of a direct mbuf as after its allocation, but with this window. */
void iw_mbuf_rewind(struct rte_mbuf *mbuf, uint16_t data_off, uint16_t len);
/* `flags` is or-ed into ol_flags. */
void iw_mbuf_tx_offload(struct rte_mbuf *mbuf, uint64_t flags, uint8_t l2, uint16_t l3, uint8_t l4);
/* Copies a (chained) packet's octets; false when it is shorter. */
int iw_mbuf_copy_out(const struct rte_mbuf *mbuf, uint32_t len, void *octets);

uint32_t iw_ring_dequeue(struct rte_ring *ring, void **objects, uint32_t count);

#endif
