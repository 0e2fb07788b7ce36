/* The device whose answers are written down, and how: what all parts use. */
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_device_attr device;
static struct ibv_port_attr port;
static union ibv_gid gid;
static int sgid_index;
static char *memory;
static struct ibv_mr *mr;

enum {
	PAGE = 4096,
	MEMORY = 1 << 20,
	ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
};

static const char *name_of(int error)
{
	return error ? strerrorname_np(error) ? strerrorname_np(error) : "?" : "done";
}

static void say(const char *what, int error)
{
	printf("%s: %s\n", what, name_of(error));
}

/* What a call that returns -1, or an error's number, or null, has said. */
#define CODE(what, call)                                                                                               \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		int code = (call);                                                                                     \
		say(what, code == -1 ? errno : code < 0 ? -code : code);                                               \
	} while (0)
#define MADE(what, call, undo)                                                                                         \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		__typeof__(call) made = (call);                                                                        \
		say(what, made ? 0 : errno);                                                                           \
		if (made)                                                                                              \
			undo(made);                                                                                    \
	} while (0)

static void must(int is_so, const char *what)
{
	if (!is_so) {
		printf("stopped at %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

struct pair {
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];
};

struct shape {
	enum ibv_qp_type type;
	int send_wr, recv_wr, sge, inline_bytes;
	struct ibv_srq *srq;
	int signal_all;
};

static struct ibv_qp *make_qp(struct ibv_cq *cq, const struct shape *shape)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.srq = shape->srq,
					.qp_type = shape->type,
					.sq_sig_all = shape->signal_all,
					.cap = {shape->send_wr, shape->srq ? 0 : shape->recv_wr, shape->sge,
						shape->srq ? 0 : shape->sge, shape->inline_bytes}};
	return ibv_create_qp(pd, &init);
}

static struct ibv_qp_attr to_init(enum ibv_qp_type type, int *mask)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = 0};
	*mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	if (type == IBV_QPT_UD) {
		attr.qkey = 0x11111111;
		*mask |= IBV_QP_QKEY;
	} else {
		attr.qp_access_flags = type == IBV_QPT_UC ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : ALL;
		*mask |= IBV_QP_ACCESS_FLAGS;
	}
	return attr;
}

static struct ibv_ah_attr address(void)
{
	struct ibv_ah_attr ah = {
	    .is_global = 1, .port_num = 1, .grh = {.dgid = gid, .sgid_index = sgid_index, .hop_limit = 64}};
	return ah;
}

static struct ibv_qp_attr to_rtr(enum ibv_qp_type type, uint32_t peer, int *mask)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	*mask = IBV_QP_STATE;
	if (type == IBV_QPT_UD)
		return attr;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer;
	attr.rq_psn = 17;
	attr.ah_attr = address();
	*mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC) {
		attr.max_dest_rd_atomic = 4;
		attr.min_rnr_timer = 1;
		*mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	}
	return attr;
}

static struct ibv_qp_attr to_rts(enum ibv_qp_type type, int *mask)
{
	struct ibv_qp_attr attr = {
	    .qp_state = IBV_QPS_RTS, .sq_psn = 17, .timeout = 8, .retry_cnt = 2, .rnr_retry = 0, .max_rd_atomic = 4};
	*mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (type == IBV_QPT_RC)
		*mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	return attr;
}

static int step(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	return ibv_modify_qp(qp, &attr, mask);
}

static int connect_one(struct ibv_qp *qp, enum ibv_qp_type type, uint32_t peer)
{
	int mask;
	struct ibv_qp_attr attr = to_init(type, &mask);
	if (ibv_modify_qp(qp, &attr, mask))
		return 1;
	attr = to_rtr(type, peer, &mask);
	if (ibv_modify_qp(qp, &attr, mask))
		return 2;
	attr = to_rts(type, &mask);
	return ibv_modify_qp(qp, &attr, mask) ? 3 : 0;
}

static struct pair connected(struct shape shape)
{
	struct pair pair;
	for (int side = 0; side < 2; side++) {
		pair.cq[side] = ibv_create_cq(context, 64, NULL, NULL, 0);
		must(pair.cq[side] != NULL, "a CQ");
		pair.qp[side] = make_qp(pair.cq[side], &shape);
		must(pair.qp[side] != NULL, "a queue pair");
	}
	for (int side = 0; side < 2; side++)
		must(connect_one(pair.qp[side], shape.type, pair.qp[!side]->qp_num) == 0, "connecting");
	return pair;
}

static void destroy(struct pair *pair)
{
	for (int side = 0; side < 2; side++) {
		must(ibv_destroy_qp(pair->qp[side]) == 0, "destroying a queue pair");
		must(ibv_destroy_cq(pair->cq[side]) == 0, "destroying a CQ");
	}
}

static struct ibv_sge piece(size_t at, uint32_t length)
{
	return (struct ibv_sge){(uint64_t)(memory + at), length, mr->lkey};
}

static int recv_(struct ibv_qp *qp, uint64_t id, size_t at, uint32_t length)
{
	struct ibv_sge sge = piece(at, length);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
	return ibv_post_recv(qp, &wr, &bad);
}

static const char *opcode(int code)
{
	switch (code) {
	case IBV_WC_SEND:
		return "SEND";
	case IBV_WC_RDMA_WRITE:
		return "WRITE";
	case IBV_WC_RDMA_READ:
		return "READ";
	case IBV_WC_COMP_SWAP:
		return "CAS";
	case IBV_WC_FETCH_ADD:
		return "FAA";
	case IBV_WC_RECV:
		return "RECV";
	case IBV_WC_RECV_RDMA_WITH_IMM:
		return "RECV_IMM";
	case IBV_WC_LOCAL_INV:
		return "LOCAL_INV";
	case IBV_WC_BIND_MW:
		return "BIND_MW";
	}
	return "?";
}

/* Polls the next completion; both sides' CQs take time on a device of the kernel's. */
static int next(struct ibv_cq *cq, struct ibv_wc *wc)
{
	for (long tries = 0; tries < 20000; tries++) {
		int count = ibv_poll_cq(cq, 1, wc);
		if (count)
			return count;
		usleep(100);
	}
	return 0;
}

static void completion(const char *what, struct ibv_cq *cq)
{
	struct ibv_wc wc;
	memset(&wc, 0x5a, sizeof wc);
	if (next(cq, &wc) != 1) {
		printf("%s: no completion\n", what);
		return;
	}
	if (wc.status != IBV_WC_SUCCESS) {
		printf("%s: id %lu, %s\n", what, (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
		return;
	}
	int receives = wc.opcode & IBV_WC_RECV;
	printf("%s: id %lu, success, %s", what, (unsigned long)wc.wr_id, opcode(wc.opcode));
	if (receives || wc.opcode == IBV_WC_RDMA_READ)
		printf(", %u bytes", wc.byte_len);
	if (receives)
		printf(", flags %x", wc.wc_flags & ~IBV_WC_IP_CSUM_OK);
	if (receives && wc.wc_flags & IBV_WC_WITH_IMM)
		printf(", imm %x", ntohl(wc.imm_data));
	printf("\n");
}

static void no_completion(const char *what, struct ibv_cq *cq)
{
	struct ibv_wc wc;
	usleep(20000);
	int count = ibv_poll_cq(cq, 1, &wc);
	if (count)
		printf("%s: %s\n", what, ibv_wc_status_str(wc.status));
	else
		printf("%s: none\n", what);
}

static struct ibv_send_wr request(enum ibv_wr_opcode op, uint64_t id, struct ibv_sge *sge, int sges)
{
	struct ibv_send_wr wr = {
	    .wr_id = id, .sg_list = sge, .num_sge = sges, .opcode = op, .send_flags = IBV_SEND_SIGNALED};
	return wr;
}

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	return ibv_post_send(qp, wr, &bad);
}
