#include <string.h>

#include "shim.h"

int iw_errno(void)
{
	return rte_errno;
}

uint32_t iw_lcore_id(void)
{
	return rte_lcore_id();
}

uint64_t iw_tsc(void)
{
	return rte_rdtsc();
}

uint16_t iw_eth_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t iw_eth_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

int iw_eth_link(uint16_t port, struct iw_link *link)
{
	struct rte_eth_link now;
	int failed;

	memset(&now, 0, sizeof(now));
	failed = rte_eth_link_get_nowait(port, &now);
	link->speed_mbps = now.link_speed;
	link->up = now.link_status == RTE_ETH_LINK_UP;
	link->full_duplex = now.link_duplex == RTE_ETH_LINK_FULL_DUPLEX;
	return failed;
}

struct rte_mbuf *iw_pktmbuf_alloc(struct rte_mempool *pool)
{
	return rte_pktmbuf_alloc(pool);
}

int iw_pktmbuf_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t count)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

void iw_pktmbuf_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

void iw_pktmbuf_free_seg(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free_seg(mbuf);
}

void iw_mbuf_hold(struct rte_mbuf *mbuf)
{
	rte_mbuf_refcnt_update(mbuf, 1);
}

void iw_mbuf_rewind(struct rte_mbuf *mbuf, uint16_t data_off, uint16_t len)
{
	rte_pktmbuf_reset(mbuf);
	mbuf->data_off = data_off;
	mbuf->data_len = len;
	mbuf->pkt_len = len;
}

void iw_mbuf_tx_offload(struct rte_mbuf *mbuf, uint64_t flags, uint8_t l2, uint16_t l3, uint8_t l4)
{
	mbuf->tx_offload = 0;
	mbuf->l2_len = l2;
	mbuf->l3_len = l3;
	mbuf->l4_len = l4;
	mbuf->ol_flags |= flags;
}

int iw_mbuf_copy_out(const struct rte_mbuf *mbuf, uint32_t len, void *octets)
{
	const void *data = rte_pktmbuf_read(mbuf, 0, len, octets);

	if (data == NULL)
		return 0;
	/* Octets that lie in one segment are returned where they are. */
	if (data != octets)
		memcpy(octets, data, len);
	return 1;
}

uint32_t iw_ring_dequeue(struct rte_ring *ring, void **objects, uint32_t count)
{
	return rte_ring_dequeue_burst(ring, objects, count, NULL);
}
