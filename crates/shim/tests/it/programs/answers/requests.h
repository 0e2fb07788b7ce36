/* What becomes of requests, right and wrong ones. */
#pragma once
#include "device.h"

static const struct shape RC = {IBV_QPT_RC, 8, 8, 2, 64, NULL, 0};

static void flushed(const char *what, struct pair *pair, int side)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	ibv_query_qp(pair->qp[side], &attr, IBV_QP_STATE, &init);
	printf("%s: state after it: %d\n", what, attr.qp_state);
}

/* A request of which the first side hears an error, and what becomes of both. */
static void wrong_at(int reaches_peer, const char *what, struct ibv_send_wr wr, int recv_length)
{
	char text[200];
	struct pair pair = connected(RC);
	if (recv_length >= 0)
		recv_(pair.qp[1], 7, 4096, recv_length);
	snprintf(text, sizeof text, "%s: posted", what);
	CODE(text, post(pair.qp[0], &wr));
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr behind = request(IBV_WR_RDMA_WRITE, 2, &sge, 1);
	behind.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	behind.wr.rdma.rkey = mr->rkey;
	post(pair.qp[0], &behind);
	snprintf(text, sizeof text, "%s: it", what);
	completion(text, pair.cq[0]);
	snprintf(text, sizeof text, "%s: what is behind", what);
	completion(text, pair.cq[0]);
	snprintf(text, sizeof text, "%s: the RECV", what);
	if (recv_length >= 0 && reaches_peer)
		completion(text, pair.cq[1]);
	if (!reaches_peer)
		no_completion(text, pair.cq[1]);
	flushed(what, &pair, 0);
	snprintf(text, sizeof text, "%s, peer", what);
	flushed(text, &pair, 1);
	destroy(&pair);
}

static void wrong(const char *what, struct ibv_send_wr wr, int recv_length)
{
	wrong_at(1, what, wr, recv_length);
}

/* One that the sender's own device refuses. */
static void wrong_here(const char *what, struct ibv_send_wr wr)
{
	wrong_at(0, what, wr, 200);
}

static void requests(void)
{
	struct pair pair = connected(RC);
	struct ibv_sge sge = piece(0, 100), none = piece(0, 0), two[3] = {piece(0, 50), piece(200, 60), piece(300, 4)};
	strcpy(memory, "some bytes");
	recv_(pair.qp[1], 10, 4096, 200);
	struct ibv_send_wr wr = request(IBV_WR_SEND, 1, &sge, 1);
	CODE("RC SEND", post(pair.qp[0], &wr));
	completion("RC SEND", pair.cq[0]);
	completion("RC SEND, peer", pair.cq[1]);
	recv_(pair.qp[1], 11, 4096, 200);
	wr = request(IBV_WR_SEND_WITH_IMM, 2, two, 2);
	wr.imm_data = htonl(0xabcdef01);
	CODE("RC SEND with immediate data", post(pair.qp[0], &wr));
	completion("RC SEND with immediate data", pair.cq[0]);
	completion("RC SEND with immediate data, peer", pair.cq[1]);
	wr = request(IBV_WR_RDMA_WRITE, 3, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.rdma.rkey = mr->rkey;
	CODE("RC WRITE", post(pair.qp[0], &wr));
	completion("RC WRITE", pair.cq[0]);
	no_completion("RC WRITE, peer", pair.cq[1]);
	recv_(pair.qp[1], 12, 4096, 200);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.wr_id = 4;
	wr.imm_data = htonl(5);
	CODE("RC WRITE with immediate data", post(pair.qp[0], &wr));
	completion("RC WRITE with immediate data", pair.cq[0]);
	completion("RC WRITE with immediate data, peer", pair.cq[1]);
	recv_(pair.qp[1], 13, 4096, 0);
	wr.wr_id = 5;
	wr.num_sge = 0;
	CODE("RC WRITE of nothing with immediate data", post(pair.qp[0], &wr));
	completion("RC WRITE of nothing with immediate data", pair.cq[0]);
	completion("RC WRITE of nothing with immediate data, peer", pair.cq[1]);
	wr = request(IBV_WR_RDMA_READ, 6, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.rdma.rkey = mr->rkey;
	CODE("RC READ", post(pair.qp[0], &wr));
	completion("RC READ", pair.cq[0]);
	wr.num_sge = 0;
	wr.wr_id = 7;
	CODE("RC READ of nothing", post(pair.qp[0], &wr));
	completion("RC READ of nothing", pair.cq[0]);
	struct ibv_sge word = piece(64, 8);
	*(uint64_t *)(memory + 8192) = 5;
	wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, &word, 1);
	wr.wr.atomic.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.atomic.rkey = mr->rkey;
	wr.wr.atomic.compare_add = 3;
	CODE("RC fetch and add", post(pair.qp[0], &wr));
	completion("RC fetch and add", pair.cq[0]);
	printf("RC fetch and add: %lu, before %lu\n", *(uint64_t *)(memory + 8192), *(uint64_t *)(memory + 64));
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr_id = 9;
	wr.wr.atomic.compare_add = 8;
	wr.wr.atomic.swap = 77;
	CODE("RC compare and swap", post(pair.qp[0], &wr));
	completion("RC compare and swap", pair.cq[0]);
	printf("RC compare and swap: %lu, before %lu\n", *(uint64_t *)(memory + 8192), *(uint64_t *)(memory + 64));
	recv_(pair.qp[1], 14, 4096, 200);
	wr = request(IBV_WR_SEND, 20, &none, 1);
	CODE("RC SEND of an element without bytes", post(pair.qp[0], &wr));
	completion("RC SEND of an element without bytes", pair.cq[0]);
	completion("RC SEND of an element without bytes, peer", pair.cq[1]);
	recv_(pair.qp[1], 15, 4096, 200);
	char here[32] = "on the stack";
	struct ibv_sge stack = {(uint64_t)here, 32, 0};
	wr = request(IBV_WR_SEND, 21, &stack, 1);
	wr.send_flags |= IBV_SEND_INLINE;
	CODE("RC inline SEND", post(pair.qp[0], &wr));
	completion("RC inline SEND", pair.cq[0]);
	completion("RC inline SEND, peer", pair.cq[1]);
	printf("RC inline SEND: %s\n", memory + 4096);
	struct ibv_sge much = piece(0, 1 << 16);
	wr = request(IBV_WR_SEND, 22, &much, 1);
	wr.send_flags |= IBV_SEND_INLINE;
	CODE("RC inline SEND, too long", post(pair.qp[0], &wr));
	wr = request(IBV_WR_SEND, 23, two, 3);
	CODE("RC SEND, too many elements", post(pair.qp[0], &wr));
	wr = request(77, 24, &sge, 1);
	CODE("RC, no such operation", post(pair.qp[0], &wr));
	struct ibv_send_wr list[3], *bad = NULL;
	for (int i = 0; i < 3; i++) {
		list[i] = request(IBV_WR_SEND, 30 + i, &sge, i == 1 ? 9 : 1);
		list[i].next = i < 2 ? &list[i + 1] : NULL;
	}
	recv_(pair.qp[1], 16, 4096, 200);
	CODE("RC list with a bad one", ibv_post_send(pair.qp[0], list, &bad));
	printf("RC list with a bad one: number %ld\n", (long)(bad - list));
	completion("RC list with a bad one, the first", pair.cq[0]);
	no_completion("RC list with a bad one, the others", pair.cq[0]);
	struct ibv_recv_wr recv_wr = {.wr_id = 1, .sg_list = two, .num_sge = 3}, *bad_recv;
	CODE("ibv_post_recv, too many elements", ibv_post_recv(pair.qp[0], &recv_wr, &bad_recv));
	int count = 0;
	while (count < 1000 && recv_(pair.qp[0], 1, 0, 8) == 0)
		count++;
	printf("ibv_post_recv until it is full: at least 8: %d\n", count >= 8);
	CODE("ibv_post_recv, full", recv_(pair.qp[0], 1, 0, 8));
	wr = request(IBV_WR_RDMA_WRITE, 40, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.rdma.rkey = mr->rkey;
	wr.send_flags = 0;
	int error = 0;
	count = 0;
	while (count < 100000 && (error = post(pair.qp[0], &wr)) == 0)
		count++;
	printf("unsignalled until it is full: at least 8: %d, then %s\n", count >= 8, name_of(error));
	destroy(&pair);

	wr = request(IBV_WR_SEND, 1, &sge, 1);
	sge.lkey ^= 0x100000;
	wrong_here("RC SEND by a wrong key", wr);
	sge = piece(MEMORY - 10, 100);
	wrong_here("RC SEND beyond the region", wr);
	sge = piece(0, 100);
	wrong("RC SEND to a RECV too short", wr, 50);
	wr = request(IBV_WR_SEND, 1, &sge, 1);
	wrong("RC SEND without a RECV", wr, -1);
	wr = request(IBV_WR_RDMA_WRITE, 1, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.rdma.rkey = mr->rkey ^ 0x100000;
	wrong("RC WRITE by a wrong key", wr, 200);
	wr.wr.rdma.rkey = mr->rkey;
	wr.wr.rdma.remote_addr = (uint64_t)(memory + MEMORY - 10);
	wrong("RC WRITE beyond the region", wr, 200);
	wr.opcode = IBV_WR_RDMA_READ;
	wrong("RC READ beyond the region", wr, 200);
	struct ibv_mr *poor = ibv_reg_mr(pd, memory, PAGE, 0),
		      *writable = ibv_reg_mr(pd, memory, PAGE, IBV_ACCESS_LOCAL_WRITE);
	wr = request(IBV_WR_RDMA_WRITE, 1, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)memory;
	wr.wr.rdma.rkey = writable->rkey;
	wrong("RC WRITE without the right", wr, 200);
	wr.opcode = IBV_WR_RDMA_READ;
	wrong("RC READ without the right", wr, 200);
	wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &word, 1);
	wr.wr.atomic.remote_addr = (uint64_t)memory;
	wr.wr.atomic.rkey = writable->rkey;
	wrong("RC atomic without the right", wr, 200);
	wr.wr.atomic.rkey = mr->rkey;
	wr.wr.atomic.remote_addr = (uint64_t)(memory + 4);
	wrong("RC atomic at an odd address", wr, 200);
	struct ibv_sge poor_sge = {(uint64_t)memory, 100, poor->lkey};
	wr = request(IBV_WR_RDMA_READ, 1, &poor_sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.rdma.rkey = mr->rkey;
	wrong_here("RC READ into memory that may not be written", wr);
	wr = request(IBV_WR_SEND, 1, &poor_sge, 1);
	pair = connected(RC);
	recv_(pair.qp[1], 7, 4096, 200);
	CODE("RC SEND from memory that may not be written", post(pair.qp[0], &wr));
	completion("RC SEND from memory that may not be written", pair.cq[0]);
	struct ibv_recv_wr poor_recv = {.wr_id = 3, .sg_list = &poor_sge, .num_sge = 1};
	completion("the RECV before", pair.cq[1]);
	CODE("RECV into memory that may not be written", ibv_post_recv(pair.qp[1], &poor_recv, &bad_recv));
	wr = request(IBV_WR_SEND, 1, &sge, 1);
	post(pair.qp[0], &wr);
	completion("RECV into memory that may not be written, sender", pair.cq[0]);
	completion("RECV into memory that may not be written", pair.cq[1]);
	destroy(&pair);
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_mr *foreign = ibv_reg_mr(other, memory, PAGE, ALL);
	struct ibv_sge foreign_sge = {(uint64_t)memory, 100, foreign->lkey};
	wr = request(IBV_WR_SEND, 1, &foreign_sge, 1);
	wrong_here("RC SEND by another domain's key", wr);
	wr = request(IBV_WR_RDMA_WRITE, 1, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)memory;
	wr.wr.rdma.rkey = foreign->rkey;
	wrong("RC WRITE by another domain's key", wr, 200);
	ibv_dereg_mr(foreign);
	ibv_dealloc_pd(other);
	ibv_dereg_mr(poor);
	ibv_dereg_mr(writable);
	/* The peer's queue pair has not been told that it may be written to. */
	pair = connected(RC);
	struct ibv_qp_attr attr = {.qp_access_flags = 0};
	CODE("RTS with other rights", ibv_modify_qp(pair.qp[1], &attr, IBV_QP_ACCESS_FLAGS));
	wr = request(IBV_WR_RDMA_WRITE, 1, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.rdma.rkey = mr->rkey;
	post(pair.qp[0], &wr);
	completion("RC WRITE to a queue pair without the right", pair.cq[0]);
	destroy(&pair);
	struct shape uc = RC;
	uc.type = IBV_QPT_UC;
	pair = connected(uc);
	CODE("UC WRITE", post(pair.qp[0], &wr));
	completion("UC WRITE", pair.cq[0]);
	wr.opcode = IBV_WR_RDMA_READ;
	CODE("UC READ", post(pair.qp[0], &wr));
	wr = request(IBV_WR_SEND, 2, &sge, 1);
	CODE("UC SEND without a RECV", post(pair.qp[0], &wr));
	completion("UC SEND without a RECV", pair.cq[0]);
	destroy(&pair);
}
