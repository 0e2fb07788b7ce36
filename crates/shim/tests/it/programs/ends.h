/* Parts of libibverbs' API, one a run: `PROGRAM NAME`. Two contexts of one process are connected. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#define CHECK(is) \
	do { \
		if (!(is)) { \
			fprintf(stderr, "line %d: not %s (errno %d)\n", __LINE__, #is, errno); \
			exit(1); \
		} \
	} while (0)
/* A call that returns what went wrong. */
#define OK(call) \
	do { \
		int error_ = (call); \
		if (error_) { \
			fprintf(stderr, "line %d: %s: %d (%s)\n", __LINE__, #call, error_, strerror(error_)); \
			exit(1); \
		} \
	} while (0)
/* One that returns null, and says why in errno. */
#define REFUSED(call, why) \
	do { \
		errno = 0; \
		CHECK(!(call) && errno == (why)); \
	} while (0)

enum { LEN = 4096, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
	IBV_ACCESS_REMOTE_ATOMIC };

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *bytes;
	union ibv_gid gid;
};

static inline struct ibv_context *opened(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

static inline struct ibv_qp *made(struct end *end, enum ibv_qp_type type, struct ibv_srq *srq, unsigned depth, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = end->cq, .recv_cq = end->cq, .srq = srq, .qp_type = type, .pd = end->pd,
		.cap = { depth, srq ? 0 : 64, 2, srq ? 0 : 2, 32 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = ops,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(end->context, &init);

	CHECK(qp);
	return qp;
}

static const uint64_t RC_OPS = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_LOCAL_INV |
	IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;

static inline struct end begun(enum ibv_qp_type type, unsigned depth, int access, struct ibv_srq *(*shared)(struct ibv_pd *))
{
	struct end end = { .context = opened() };

	end.pd = ibv_alloc_pd(end.context);
	end.cq = ibv_create_cq(end.context, 256, NULL, NULL, 0);
	CHECK(end.pd && end.cq);
	end.qp = made(&end, type, shared ? shared(end.pd) : NULL, depth, type == IBV_QPT_UD ? IBV_QP_EX_WITH_SEND :
		type == IBV_QPT_UC ? IBV_QP_EX_WITH_SEND : RC_OPS);
	end.bytes = aligned_alloc(LEN, 2 * LEN);
	CHECK(end.bytes);
	memset(end.bytes, 0, 2 * LEN);
	end.mr = ibv_reg_mr(end.pd, end.bytes, LEN, access);
	CHECK(end.mr);
	CHECK(!ibv_query_gid(end.context, 1, 0, &end.gid));
	return end;
}

static inline void ready(struct ibv_qp *qp, enum ibv_qp_type type, union ibv_gid gid, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL, .qkey = 7, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer, .max_dest_rd_atomic = 1, .max_rd_atomic = 1, .min_rnr_timer = 1, .timeout = 14,
		.retry_cnt = 7, .rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } },
	};
	int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT, rtr = IBV_QP_STATE, rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	init |= type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (type != IBV_QPT_UD)
		rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC) {
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	OK(ibv_modify_qp(qp, &attr, init));
	attr.qp_state = IBV_QPS_RTR;
	OK(ibv_modify_qp(qp, &attr, rtr));
	attr.qp_state = IBV_QPS_RTS;
	OK(ibv_modify_qp(qp, &attr, rts));
}

static inline void reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* Connects two ends, anew if they were. */
static inline void connected(struct end *a, struct end *b, enum ibv_qp_type type)
{
	struct ibv_wc wc;

	reset(a->qp);
	reset(b->qp);
	ready(a->qp, type, b->gid, b->qp->qp_num);
	ready(b->qp, type, a->gid, a->qp->qp_num);
	while (ibv_poll_cq(a->cq, 1, &wc) > 0)
		;
	while (ibv_poll_cq(b->cq, 1, &wc) > 0)
		;
}

static inline struct ibv_wc completion(struct end *end, struct end *other)
{
	struct ibv_wc wc, none;
	int found;

	/* Whoever has to do with it polls as well. */
	while (!(found = ibv_poll_cq(end->cq, 1, &wc)))
		CHECK(other == end || ibv_poll_cq(other->cq, 0, &none) == 0);
	CHECK(found == 1);
	return wc;
}

static inline struct ibv_wc done(struct end *end)
{
	return completion(end, end);
}

static inline int posted(struct end *end, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(end->qp, wr, &bad);
}

/* What becomes of a WRITE of eight bytes. */
static inline enum ibv_wc_status written(struct end *end, uint64_t to, uint32_t rkey, const char *bytes)
{
	struct ibv_sge sge = { (uintptr_t) end->bytes, 8, end->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { to, rkey } };

	memcpy(end->bytes, bytes, 8);
	OK(posted(end, &wr));
	return done(end).status;
}

static inline void received(struct end *end, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t) end->bytes + 512, 64, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	OK(ibv_post_recv(end->qp, &wr, &bad));
}

/* Binds a window of the second kind. */
static inline enum ibv_wc_status bound(struct end *end, struct ibv_mw *mw, uint32_t rkey, uint64_t addr, uint64_t len, int access)
{
	struct ibv_send_wr wr = { .wr_id = 6, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { mw, rkey, { end->mr, addr, len, access } } };
	struct ibv_wc wc;

	OK(posted(end, &wr));
	wc = done(end);
	CHECK(wc.wr_id == 6 && (wc.status || wc.opcode == IBV_WC_BIND_MW));
	return wc.status;
}

struct part {
	const char *name;
	void (*run)(void);
};

/* Runs the part that is asked for, and says so. */
static inline int run_part(const struct part *parts, size_t count, int argc, char **argv)
{
	CHECK(argc == 2);
	for (size_t at = 0; at < count; at++)
		if (!strcmp(argv[1], parts[at].name)) {
			parts[at].run();
			printf("%s done\n", argv[1]);
			return 0;
		}
	fprintf(stderr, "no part %s\n", argv[1]);
	return 1;
}
