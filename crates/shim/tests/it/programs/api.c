/* Parts of libibverbs' API, one a run: `api NAME`. Two contexts of one process are connected. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
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

static struct ibv_context *opened(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;

	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

static struct ibv_qp *made(struct end *end, enum ibv_qp_type type, struct ibv_srq *srq, unsigned depth, uint64_t ops)
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

static struct end begun(enum ibv_qp_type type, unsigned depth, int access, struct ibv_srq *(*shared)(struct ibv_pd *))
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

static void ready(struct ibv_qp *qp, enum ibv_qp_type type, union ibv_gid gid, uint32_t peer)
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

static void reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* Connects two ends, anew if they were. */
static void connected(struct end *a, struct end *b, enum ibv_qp_type type)
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

static struct ibv_wc completion(struct end *end, struct end *other)
{
	struct ibv_wc wc, none;
	int found;

	/* Whoever has to do with it polls as well. */
	while (!(found = ibv_poll_cq(end->cq, 1, &wc)))
		CHECK(other == end || ibv_poll_cq(other->cq, 0, &none) == 0);
	CHECK(found == 1);
	return wc;
}

static struct ibv_wc done(struct end *end)
{
	return completion(end, end);
}

static int posted(struct end *end, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return ibv_post_send(end->qp, wr, &bad);
}

/* What becomes of a WRITE of eight bytes. */
static enum ibv_wc_status written(struct end *end, uint64_t to, uint32_t rkey, const char *bytes)
{
	struct ibv_sge sge = { (uintptr_t) end->bytes, 8, end->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { to, rkey } };

	memcpy(end->bytes, bytes, 8);
	OK(posted(end, &wr));
	return done(end).status;
}

static void received(struct end *end, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t) end->bytes + 512, 64, end->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	OK(ibv_post_recv(end->qp, &wr, &bad));
}

/* `ibv_wr_complete` posts all or nothing. */
static void whole(void)
{
	const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD };

	for (int type = 0; type < 3; type++) {
		struct end a = begun(types[type], 4, ALL, NULL), b = begun(types[type], 4, ALL, NULL);
		struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a.qp);
		struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = b.gid, .hop_limit = 1 } };
		struct ibv_ah *ah = ibv_create_ah(a.pd, &to);

		connected(&a, &b, types[type]);
		for (int round = 0; round < 8; round++) {
			/* Two are there; three more do not fit, two do. */
			const int counts[] = { 2, 3, 2 }, expected[] = { 0, ENOMEM, 0 };

			for (int recv = 0; recv < 4; recv++)
				received(&b, recv);
			for (int list = 0; list < 3; list++) {
				ibv_wr_start(qp);
				for (int wr = 0; wr < counts[list]; wr++) {
					qp->wr_id = 10 * list + wr;
					qp->wr_flags = IBV_SEND_SIGNALED;
					ibv_wr_send(qp);
					if (types[type] == IBV_QPT_UD)
						ibv_wr_set_ud_addr(qp, ah, b.qp->qp_num, 7);
					ibv_wr_set_inline_data(qp, "message", 8);
				}
				CHECK(ibv_wr_complete(qp) == expected[list]);
			}
			for (int list = 0; list < 3; list += 2)
				for (int wr = 0; wr < 2; wr++) {
					struct ibv_wc wc = completion(&a, &b);

					CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t) (10 * list + wr));
				}
			for (int recv = 0; recv < 4; recv++)
				CHECK(completion(&b, &a).wr_id == (uint64_t) recv);
		}
	}
}

/* A window of the first kind. */
static void first(void)
{
	struct end a = begun(IBV_QPT_RC, 16, ALL, NULL);
	struct end b = begun(IBV_QPT_RC, 16, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND, NULL);
	struct ibv_device_attr device;
	struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .wr_id = 5, .send_flags = IBV_SEND_SIGNALED,
		.bind_info = { b.mr, (uintptr_t) b.bytes + 64, 64, IBV_ACCESS_REMOTE_WRITE } };
	uint32_t before;
	struct ibv_wc wc;

	OK(ibv_query_device(a.context, &device));
	CHECK(device.max_mw > 0 && device.device_cap_flags & IBV_DEVICE_MEM_WINDOW);
	CHECK(mw && mw->type == IBV_MW_TYPE_1 && mw->pd == b.pd && mw->context == b.context);
	connected(&a, &b, IBV_QPT_RC);
	before = mw->rkey;
	OK(ibv_bind_mw(b.qp, mw, &bind));
	CHECK(mw->rkey != before && mw->rkey >> 8 == before >> 8);
	wc = done(&b);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 5);
	CHECK(written(&a, (uintptr_t) b.bytes + 64, mw->rkey, "windowed") == IBV_WC_SUCCESS);
	CHECK(written(&a, (uintptr_t) b.bytes + 120, mw->rkey, "the last") == IBV_WC_SUCCESS);
	CHECK(!memcmp(b.bytes + 64, "windowed", 8) && !memcmp(b.bytes + 120, "the last", 8));
	/* Nothing but what it covers, nothing but what it grants, and not by its region's key. */
	CHECK(written(&a, (uintptr_t) b.bytes + 121, mw->rkey, "outside.") == IBV_WC_REM_ACCESS_ERR);
	connected(&a, &b, IBV_QPT_RC);
	CHECK(written(&a, (uintptr_t) b.bytes + 63, mw->rkey, "outside.") == IBV_WC_REM_ACCESS_ERR);
	connected(&a, &b, IBV_QPT_RC);
	CHECK(written(&a, (uintptr_t) b.bytes + 64, b.mr->rkey, "outside.") == IBV_WC_REM_ACCESS_ERR);
	CHECK(!memcmp(b.bytes + 64, "windowed", 8));
	connected(&a, &b, IBV_QPT_RC);
	{
		struct ibv_sge sge = { (uintptr_t) a.bytes, 8, a.mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
			.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t) b.bytes + 64, mw->rkey } };

		OK(posted(&a, &wr));
		CHECK(done(&a).status == IBV_WC_REM_ACCESS_ERR);
	}
	/* It is no memory of its own side. */
	connected(&a, &b, IBV_QPT_RC);
	{
		struct ibv_sge sge = { (uintptr_t) b.bytes + 64, 8, mw->rkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t) a.bytes, a.mr->rkey } };

		OK(posted(&b, &wr));
		CHECK(done(&b).status == IBV_WC_LOC_PROT_ERR);
	}
	/* Its region stays as long as it is bound. */
	CHECK(ibv_dereg_mr(b.mr) == EBUSY);
	/* Bound anew, it has another key and another place. */
	connected(&a, &b, IBV_QPT_RC);
	before = mw->rkey;
	bind.bind_info.addr += 64;
	OK(ibv_bind_mw(b.qp, mw, &bind));
	CHECK(done(&b).status == IBV_WC_SUCCESS);
	CHECK(written(&a, (uintptr_t) b.bytes + 128, mw->rkey, "moved...") == IBV_WC_SUCCESS);
	CHECK(!memcmp(b.bytes + 128, "moved...", 8));
	CHECK(written(&a, (uintptr_t) b.bytes + 64, before, "too late") == IBV_WC_REM_ACCESS_ERR);
	connected(&a, &b, IBV_QPT_RC);
	/* Unbound, it is out of reach. */
	bind.bind_info = (struct ibv_mw_bind_info) { 0 };
	OK(ibv_bind_mw(b.qp, mw, &bind));
	CHECK(done(&b).status == IBV_WC_SUCCESS);
	CHECK(written(&a, (uintptr_t) b.bytes + 128, mw->rkey, "too late") == IBV_WC_REM_ACCESS_ERR);
	connected(&a, &b, IBV_QPT_RC);
	/* What it cannot be bound to. */
	bind.bind_info = (struct ibv_mw_bind_info) { b.mr, (uintptr_t) b.bytes, LEN + 1, IBV_ACCESS_REMOTE_WRITE };
	OK(ibv_bind_mw(b.qp, mw, &bind));
	wc = done(&b);
	CHECK(wc.status == IBV_WC_MW_BIND_ERR && wc.wr_id == 5);
	connected(&a, &b, IBV_QPT_RC);
	{
		struct ibv_mr *closed = ibv_reg_mr(b.pd, b.bytes + LEN, LEN, ALL);

		bind.bind_info = (struct ibv_mw_bind_info) { closed, (uintptr_t) b.bytes + LEN, 8, IBV_ACCESS_REMOTE_WRITE };
		OK(ibv_bind_mw(b.qp, mw, &bind));
		CHECK(done(&b).status == IBV_WC_MW_BIND_ERR);
		connected(&a, &b, IBV_QPT_RC);
		bind.bind_info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
		CHECK(ibv_bind_mw(b.qp, mw, &bind) == EINVAL);
		OK(ibv_dereg_mr(closed));
	}
	OK(ibv_dealloc_mw(mw));
	OK(ibv_dereg_mr(b.mr));
	REFUSED(ibv_alloc_mw(b.pd, 3), EINVAL);
}

/* Binds a window of the second kind. */
static enum ibv_wc_status bound(struct end *end, struct ibv_mw *mw, uint32_t rkey, uint64_t addr, uint64_t len, int access)
{
	struct ibv_send_wr wr = { .wr_id = 6, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { mw, rkey, { end->mr, addr, len, access } } };
	struct ibv_wc wc;

	OK(posted(end, &wr));
	wc = done(end);
	CHECK(wc.wr_id == 6 && (wc.status || wc.opcode == IBV_WC_BIND_MW));
	return wc.status;
}

/* A window of the second kind, in memory of either sort. */
static void second(void)
{
	struct end a = begun(IBV_QPT_RC, 16, ALL, NULL);
	struct end b = begun(IBV_QPT_RC, 16, ALL | IBV_ACCESS_MW_BIND, NULL);
	struct end other = a, others = b;
	struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
	uint64_t at = (uintptr_t) b.bytes + 256;
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(b.qp);
	struct ibv_sge sge = { (uintptr_t) a.bytes, 16, a.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_mr *readable;
	struct ibv_wc wc;
	uint32_t rkey;

	CHECK(mw && mw->type == IBV_MW_TYPE_2);
	other.qp = made(&a, IBV_QPT_RC, NULL, 16, RC_OPS);
	others.qp = made(&b, IBV_QPT_RC, NULL, 16, RC_OPS);
	connected(&other, &others, IBV_QPT_RC);
	connected(&a, &b, IBV_QPT_RC);
	rkey = ibv_inc_rkey(mw->rkey);
	CHECK(bound(&b, mw, rkey, at, 64, IBV_ACCESS_REMOTE_WRITE) == IBV_WC_SUCCESS);
	CHECK(written(&a, at, rkey, "windowed") == IBV_WC_SUCCESS && !memcmp(b.bytes + 256, "windowed", 8));
	/* Over the queue pair alone that has bound it. */
	CHECK(written(&other, at, rkey, "stranger") == IBV_WC_REM_ACCESS_ERR && !memcmp(b.bytes + 256, "windowed", 8));
	/* It is bound. */
	CHECK(bound(&b, mw, ibv_inc_rkey(rkey), at, 64, IBV_ACCESS_REMOTE_WRITE) == IBV_WC_MW_BIND_ERR);
	connected(&a, &b, IBV_QPT_RC);
	CHECK(written(&a, at, rkey, "as it is") == IBV_WC_SUCCESS);
	/* Taken away by its own side, it is out of reach also for those who have used it. */
	wr.invalidate_rkey = rkey;
	OK(posted(&b, &wr));
	wc = done(&b);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_LOCAL_INV && wc.wr_id == 9);
	CHECK(written(&a, at, rkey, "too late") == IBV_WC_REM_ACCESS_ERR);
	connected(&a, &b, IBV_QPT_RC);
	OK(posted(&b, &wr));
	CHECK(done(&b).status == IBV_WC_MW_BIND_ERR);
	connected(&a, &b, IBV_QPT_RC);
	/* Addresses from 0 on. */
	rkey = ibv_inc_rkey(rkey);
	CHECK(bound(&b, mw, rkey, at, 64, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED) == IBV_WC_SUCCESS);
	CHECK(written(&a, 56, rkey, "zero....") == IBV_WC_SUCCESS && !memcmp(b.bytes + 256 + 56, "zero....", 8));
	/* Taken away by the peer: what it sends behind that fails, though nobody has polled. */
	received(&b, 11);
	readable = ibv_reg_mr(a.pd, a.bytes, 64, 0);
	CHECK(readable);
	sge.lkey = readable->lkey;
	wr = (struct ibv_send_wr) { .wr_id = 12, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV,
		.send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = rkey };
	memcpy(a.bytes, "with a farewell", 16);
	OK(posted(&a, &wr));
	wc = done(&a);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
	CHECK(written(&a, 0, rkey, "too late") == IBV_WC_REM_ACCESS_ERR);
	wc = done(&b);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV && wc.wr_id == 11 && wc.byte_len == 16);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV && !(wc.wc_flags & IBV_WC_WITH_IMM) && wc.invalidated_rkey == rkey);
	CHECK(!memcmp(b.bytes + 512, "with a farewell", 16));
	/* It is there to be bound again; with the calls that build requests, inline and without bytes. */
	for (int len = 0; len <= 16; len += 16) {
		connected(&a, &b, IBV_QPT_RC);
		rkey = ibv_inc_rkey(rkey);
		ibv_wr_start(qp);
		qp->wr_id = 13;
		qp->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_bind_mw(qp, mw, rkey,
			&(struct ibv_mw_bind_info) { b.mr, at, 64, IBV_ACCESS_REMOTE_WRITE });
		OK(ibv_wr_complete(qp));
		wc = done(&b);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_BIND_MW && wc.wr_id == 13);
		CHECK(written(&a, at, rkey, "extended") == IBV_WC_SUCCESS);
		received(&b, 14);
		qp = ibv_qp_to_qp_ex(a.qp);
		ibv_wr_start(qp);
		qp->wr_flags = 0;
		ibv_wr_send_inv(qp, rkey);
		if (len)
			ibv_wr_set_inline_data(qp, "without a region", len);
		OK(ibv_wr_complete(qp));
		qp = ibv_qp_to_qp_ex(b.qp);
		wc = done(&b);
		CHECK(wc.wr_id == 14 && wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == rkey && wc.byte_len == (uint32_t) len);
		CHECK(written(&a, at, rkey, "too late") == IBV_WC_REM_ACCESS_ERR);
	}
	/* A key that is no window's is not taken away, nor one of another queue pair's. */
	for (int round = 0; round < 2; round++) {
		connected(&a, &b, IBV_QPT_RC);
		connected(&other, &others, IBV_QPT_RC);
		rkey = ibv_inc_rkey(rkey);
		CHECK(bound(&others, mw, rkey, at, 64, IBV_ACCESS_REMOTE_WRITE) == IBV_WC_SUCCESS);
		received(&b, 15);
		wr.invalidate_rkey = round ? rkey : b.mr->rkey;
		OK(posted(&a, &wr));
		CHECK(done(&a).status == IBV_WC_REM_ACCESS_ERR);
		CHECK(written(&other, at, round ? rkey : b.mr->rkey, "it stays") == IBV_WC_SUCCESS);
		ibv_wr_start(ibv_qp_to_qp_ex(others.qp));
		ibv_qp_to_qp_ex(others.qp)->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_local_inv(ibv_qp_to_qp_ex(others.qp), rkey);
		OK(ibv_wr_complete(ibv_qp_to_qp_ex(others.qp)));
		do
			wc = done(&others);
		while (wc.status == IBV_WC_WR_FLUSH_ERR);
		CHECK(wc.opcode == IBV_WC_LOCAL_INV && wc.status == IBV_WC_SUCCESS);
	}
	/* A queue pair that goes takes what was bound over it along. */
	connected(&other, &others, IBV_QPT_RC);
	rkey = ibv_inc_rkey(rkey);
	CHECK(bound(&others, mw, rkey, at, 64, IBV_ACCESS_REMOTE_WRITE) == IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(b.mr) == EBUSY && ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0) == -1 && errno == EBUSY);
	OK(ibv_destroy_qp(others.qp));
	OK(ibv_dereg_mr(b.mr));
	/* The request is for windows of the second kind; the other kind has its call, which is not for these. */
	{
		struct ibv_mw *one = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
		struct ibv_mw_bind call = { 0 };

		wr = (struct ibv_send_wr) { .opcode = IBV_WR_BIND_MW, .bind_mw = { one, one->rkey, { 0 } } };
		CHECK(posted(&b, &wr) == EINVAL);
		CHECK(ibv_bind_mw(b.qp, mw, &call) == EINVAL);
		OK(ibv_dealloc_mw(one));
	}
	CHECK(ibv_dealloc_pd(b.pd) == EBUSY);
	OK(ibv_dereg_mr(readable));
	OK(ibv_dealloc_mw(mw));
}

/* A peer that writes by a window's key all the time, which it is told anew. */
static struct {
	struct end *end;
	uint64_t at;
	_Atomic uint32_t rkey;
	_Atomic unsigned long writes;
	_Atomic int is_over;
} race;

static void *writing(void *nothing)
{
	while (!race.is_over) {
		CHECK(written(race.end, race.at, race.rkey, "********") == IBV_WC_SUCCESS);
		race.writes++;
	}
	return nothing;
}

/* Waits until so many more are done that began after this. */
static void until_written(unsigned long more)
{
	unsigned long before = race.writes;

	while (race.writes < before + 1 + more)
		usleep(0);
}

/* A window that is bound and unbound while a peer writes. Over UC, where a refused WRITE is lost and nothing fails. */
static void under_way(void)
{
	struct end a = begun(IBV_QPT_UC, 16, ALL, NULL);
	struct end b = begun(IBV_QPT_UC, 16, ALL | IBV_ACCESS_MW_BIND, NULL);
	struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED }, none = bind;
	volatile char *bytes = b.bytes + 64;
	pthread_t writer;

	CHECK(mw);
	connected(&a, &b, IBV_QPT_UC);
	race.end = &a;
	race.at = (uintptr_t) bytes;
	race.rkey = mw->rkey;
	CHECK(!pthread_create(&writer, NULL, writing, NULL));
	bind.bind_info = (struct ibv_mw_bind_info) { b.mr, (uintptr_t) bytes, 8, IBV_ACCESS_REMOTE_WRITE };
	for (int round = 0; round < 50; round++) {
		OK(ibv_bind_mw(b.qp, mw, &bind));
		CHECK(done(&b).status == IBV_WC_SUCCESS);
		race.rkey = mw->rkey;
		/* It is reached; */
		while (!bytes[7])
			usleep(0);
		OK(ibv_bind_mw(b.qp, mw, &none));
		CHECK(done(&b).status == IBV_WC_SUCCESS);
		/* and when what was under way has ended, no more. */
		until_written(0);
		for (int at = 0; at < 8; at++)
			bytes[at] = 0;
		until_written(20);
		for (int at = 0; at < 8; at++)
			CHECK(!bytes[at]);
	}
	race.is_over = 1;
	CHECK(!pthread_join(writer, NULL));
	OK(ibv_dealloc_mw(mw));
	OK(ibv_dereg_mr(b.mr));
}

/* Completion queues that change their size. */
static void resize(void)
{
	struct end a = begun(IBV_QPT_RC, 64, ALL, NULL), b = begun(IBV_QPT_RC, 64, ALL, NULL);
	struct ibv_sge sge = { (uintptr_t) a.bytes, 8, a.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t) b.bytes, b.mr->rkey } };
	struct ibv_cq_init_attr_ex init = { .cqe = 2, .wc_flags = IBV_WC_STANDARD_FLAGS,
		.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
		.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN | IBV_CREATE_CQ_ATTR_SINGLE_THREADED };
	uint64_t next = 0, polled = 0;
	struct ibv_wc wc;

	OK(ibv_resize_cq(a.cq, 3));
	CHECK(a.cq->cqe == 3);
	connected(&a, &b, IBV_QPT_RC);
	/* The first use of the peer's memory waits for its answer; those after it are done when they are posted. */
	CHECK(written(&a, (uintptr_t) b.bytes, b.mr->rkey, "at first") == IBV_WC_SUCCESS);
	/* As many as it holds, after each size that it had. */
	for (int size = 3; size <= 48; size = size * 2 + 1) {
		OK(ibv_resize_cq(a.cq, size));
		CHECK(a.cq->cqe == size);
		for (int round = 0; round < 3; round++) {
			for (int at = 0; at < size; at++) {
				wr.wr_id = next++;
				OK(posted(&a, &wr));
			}
			CHECK(size == 1 || ibv_resize_cq(a.cq, size - 1) == EINVAL);
			CHECK(a.cq->cqe == size);
			/* Some, then more behind those that are left. */
			for (int at = 0; at < size / 2; at++)
				CHECK(ibv_poll_cq(a.cq, 1, &wc) == 1 && !wc.status && wc.wr_id == polled++);
			for (int at = 0; at < size / 2; at++) {
				wr.wr_id = next++;
				OK(posted(&a, &wr));
			}
			while (polled < next)
				CHECK(ibv_poll_cq(a.cq, 1, &wc) == 1 && !wc.status && wc.wr_id == polled++);
			CHECK(!ibv_poll_cq(a.cq, 1, &wc));
		}
	}
	CHECK(ibv_resize_cq(a.cq, 0) == EINVAL && ibv_resize_cq(a.cq, 1 << 30) == EINVAL);
	/* Smaller again, and one too many. */
	OK(ibv_resize_cq(a.cq, 2));
	for (int at = 0; at < 3; at++)
		OK(posted(&a, &wr));
	CHECK(ibv_poll_cq(a.cq, 1, &wc) < 0);
	{
		struct ibv_async_event event;

		OK(ibv_get_async_event(a.context, &event));
		CHECK(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == a.cq);
		ibv_ack_async_event(&event);
	}
	/* One that minds no overrun. */
	a = begun(IBV_QPT_RC, 64, ALL, NULL);
	OK(ibv_destroy_qp(a.qp));
	a.cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(a.context, &init));
	CHECK(a.cq);
	a.qp = made(&a, IBV_QPT_RC, NULL, 64, RC_OPS);
	connected(&a, &b, IBV_QPT_RC);
	sge = (struct ibv_sge) { (uintptr_t) a.bytes, 8, a.mr->lkey };
	for (wr.wr_id = 0; wr.wr_id < 64; wr.wr_id++)
		OK(posted(&a, &wr));
	for (polled = 0; polled < 64; polled++) {
		wc = done(&a);
		CHECK(!wc.status && wc.wr_id == polled);
	}
	init.flags = 1 << 2;
	REFUSED(ibv_create_cq_ex(a.context, &init), EOPNOTSUPP);
}

static struct ibv_srq *srq;

static struct ibv_srq *shared(struct ibv_pd *pd)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 16, .max_sge = 1 } };

	srq = ibv_create_srq(pd, &init);
	CHECK(srq);
	return srq;
}

/* The limit of a shared receive queue. */
static void limit(void)
{
	struct end b = begun(IBV_QPT_RC, 64, ALL, shared), a = begun(IBV_QPT_RC, 64, ALL, NULL);
	struct ibv_sge sge = { (uintptr_t) b.bytes, 64, b.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	struct pollfd events = { .fd = b.context->async_fd, .events = POLLIN };
	struct ibv_srq_attr attr = { .srq_limit = 3 };
	struct ibv_async_event event;

	connected(&a, &b, IBV_QPT_RC);
	for (int round = 0; round < 3; round++) {
		for (int at = 0; at < 6; at++)
			OK(ibv_post_srq_recv(srq, &wr, &bad));
		attr.srq_limit = 3;
		OK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
		OK(ibv_query_srq(srq, &attr));
		CHECK(attr.srq_limit == 3 && attr.max_wr >= 16);
		for (int taken = 1; taken <= 6; taken++) {
			OK(posted(&a, &send));
			CHECK(!completion(&b, &a).status && !completion(&a, &b).status);
			/* When there are two left, and not again. */
			CHECK(poll(&events, 1, 0) == (taken == 4));
			if (taken == 4) {
				OK(ibv_get_async_event(b.context, &event));
				CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
				ibv_ack_async_event(&event);
				OK(ibv_query_srq(srq, &attr));
				CHECK(attr.srq_limit == 0);
			}
		}
	}
	/* At once, when there are fewer; not when it was taken back. */
	attr.srq_limit = 1;
	OK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	CHECK(poll(&events, 1, 0) == 1);
	OK(ibv_get_async_event(b.context, &event));
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED);
	ibv_ack_async_event(&event);
	OK(ibv_post_srq_recv(srq, &wr, &bad));
	attr.srq_limit = 1;
	OK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	attr.srq_limit = 0;
	OK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	OK(posted(&a, &send));
	CHECK(!completion(&b, &a).status);
	CHECK(poll(&events, 1, 0) == 0);
	/* Queues keep their size, and a limit is one that can be reached. */
	attr = (struct ibv_srq_attr) { .max_wr = 32, .srq_limit = 17 };
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) == EOPNOTSUPP);
	CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == EINVAL);
	CHECK(ibv_modify_srq(srq, &attr, 1 << 5) == EINVAL);
	OK(ibv_destroy_qp(b.qp));
	OK(ibv_destroy_srq(srq));
}

/* Registering anew under the same key. */
static void rereg(void)
{
	struct end a = begun(IBV_QPT_RC, 16, ALL, NULL), b = begun(IBV_QPT_RC, 16, ALL, NULL);
	uint32_t lkey = b.mr->lkey, rkey = b.mr->rkey;
	uint64_t at = (uintptr_t) b.bytes;
	struct ibv_pd *other = ibv_alloc_pd(b.context);

	connected(&a, &b, IBV_QPT_RC);
	CHECK(written(&a, at, rkey, "at first") == IBV_WC_SUCCESS && !memcmp(b.bytes, "at first", 8));
	/* Another right, which a peer has used before. */
	CHECK(!ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
	CHECK(b.mr->lkey == lkey && b.mr->rkey == rkey && b.mr->addr == b.bytes);
	CHECK(written(&a, at, rkey, "too late") == IBV_WC_REM_ACCESS_ERR && !memcmp(b.bytes, "at first", 8));
	connected(&a, &b, IBV_QPT_RC);
	CHECK(!ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL));
	CHECK(written(&a, at, rkey, "it may. ") == IBV_WC_SUCCESS && !memcmp(b.bytes, "it may. ", 8));
	/* Another place. */
	CHECK(!ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, b.bytes + LEN, 128, 0));
	CHECK(b.mr->lkey == lkey && b.mr->rkey == rkey && b.mr->addr == b.bytes + LEN && b.mr->length == 128);
	CHECK(written(&a, at + LEN, rkey, "the next") == IBV_WC_SUCCESS && !memcmp(b.bytes + LEN, "the next", 8));
	CHECK(written(&a, at, rkey, "outside.") == IBV_WC_REM_ACCESS_ERR && !memcmp(b.bytes, "it may. ", 8));
	connected(&a, &b, IBV_QPT_RC);
	/* Another domain, which the queue pair is not of; and back. */
	CHECK(!ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	CHECK(b.mr->pd == other && ibv_dealloc_pd(other) == EBUSY);
	CHECK(written(&a, at + LEN, rkey, "stranger") == IBV_WC_REM_ACCESS_ERR);
	connected(&a, &b, IBV_QPT_RC);
	CHECK(!ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, b.pd, b.bytes, LEN, ALL));
	OK(ibv_dealloc_pd(other));
	CHECK(written(&a, at, rkey, "is back.") == IBV_WC_SUCCESS && !memcmp(b.bytes, "is back.", 8));
	/* What makes no sense leaves it as it is. */
#define LEFT(why, ...) \
	errno = 0; \
	CHECK(ibv_rereg_mr(b.mr, __VA_ARGS__) == IBV_REREG_MR_ERR_INPUT && errno == (why)); \
	CHECK(b.mr->pd == b.pd && b.mr->addr == b.bytes && b.mr->length == LEN && b.mr->rkey == rkey)
	LEFT(EINVAL, 1 << 3, NULL, NULL, 0, 0);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 8, 0);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, b.bytes, 0, 0);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, b.bytes, LEN, ALL);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1 << 15);
	LEFT(EOPNOTSUPP, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_ZERO_BASED);
	/* Another device's. */
	CHECK(a.context != b.context);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_PD, a.pd, NULL, 0, 0);
	CHECK(written(&a, at, rkey, "and on. ") == IBV_WC_SUCCESS && !memcmp(b.bytes, "and on. ", 8));
	OK(ibv_dereg_mr(b.mr));
	CHECK(written(&a, at, rkey, "too late") == IBV_WC_REM_ACCESS_ERR);
}

/* Parent domains and thread domains. */
static void domains(void)
{
	struct end end = begun(IBV_QPT_RC, 16, ALL, NULL);
	struct ibv_td_init_attr none = { 0 }, unknown = { 1 };
	struct ibv_td *td = ibv_alloc_td(end.context, &none);
	struct ibv_parent_domain_init_attr init = { .pd = end.pd, .td = td };
	struct ibv_pd *parent;
	struct ibv_mr *mr;
	struct ibv_cq_init_attr_ex cq = { .cqe = 16, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_cq_ex *made_cq;

	CHECK(td && td->context == end.context);
	parent = ibv_alloc_parent_domain(end.context, &init);
	CHECK(parent && parent != end.pd && parent->context == end.context);
	CHECK(ibv_dealloc_td(td) == EBUSY);
	mr = ibv_reg_mr(parent, end.bytes, LEN, ALL);
	CHECK(mr && mr->pd == parent);
	CHECK(ibv_dealloc_pd(parent) == EBUSY);
	cq.parent_domain = parent;
	made_cq = ibv_create_cq_ex(end.context, &cq);
	CHECK(made_cq);
	OK(ibv_dereg_mr(mr));
	CHECK(ibv_dealloc_pd(parent) == EBUSY);
	OK(ibv_destroy_cq(ibv_cq_ex_to_cq(made_cq)));
	/* A parent domain stands for a protection domain: what is made with either goes together. */
	{
		struct end a = end, b = end;

		a.pd = parent;
		a.qp = made(&a, IBV_QPT_RC, NULL, 16, RC_OPS);
		b.mr = ibv_reg_mr(parent, b.bytes + LEN, LEN, ALL);
		connected(&a, &b, IBV_QPT_RC);
		CHECK(written(&a, (uintptr_t) b.bytes + LEN, b.mr->rkey, "together") == IBV_WC_SUCCESS);
		OK(ibv_destroy_qp(a.qp));
		OK(ibv_dereg_mr(b.mr));
	}
	REFUSED(ibv_alloc_td(end.context, &unknown), EINVAL);
	init.comp_mask = 1 << 2;
	REFUSED(ibv_alloc_parent_domain(end.context, &init), EINVAL);
	init = (struct ibv_parent_domain_init_attr) { .pd = parent };
	REFUSED(ibv_alloc_parent_domain(end.context, &init), EINVAL);
	init.pd = NULL;
	REFUSED(ibv_alloc_parent_domain(end.context, &init), EINVAL);
	cq.parent_domain = end.pd;
	REFUSED(ibv_create_cq_ex(end.context, &cq), EINVAL);
	OK(ibv_destroy_qp(end.qp));
	OK(ibv_dereg_mr(end.mr));
	CHECK(ibv_dealloc_pd(end.pd) == EBUSY);
	OK(ibv_dealloc_pd(parent));
	OK(ibv_dealloc_td(td));
	OK(ibv_dealloc_pd(end.pd));
}

static uint64_t now(clockid_t clock)
{
	struct timespec time;

	CHECK(!clock_gettime(clock, &time));
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* The time of completions, and what else can be read of them. */
static void stamps(void)
{
	struct end a = begun(IBV_QPT_RC, 16, ALL, NULL), b = begun(IBV_QPT_RC, 16, ALL, NULL);
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS |
		IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK |
		IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG };
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_device_attr_ex device;
	struct ibv_poll_cq_attr none = { 0 };
	struct ibv_cq_ex *cq;
	struct ibv_sge sge;
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED };
	uint64_t before, wall, last = 0;

	OK(ibv_query_device_ex(a.context, NULL, &device));
	CHECK(device.completion_timestamp_mask == UINT64_MAX && device.hca_core_clock == 1000000);
	OK(ibv_destroy_qp(a.qp));
	cq = ibv_create_cq_ex(a.context, &init);
	CHECK(cq);
	a.cq = ibv_cq_ex_to_cq(cq);
	a.qp = made(&a, IBV_QPT_RC, NULL, 16, RC_OPS);
	connected(&a, &b, IBV_QPT_RC);
	sge = (struct ibv_sge) { (uintptr_t) a.bytes, 8, a.mr->lkey };
	wr.wr.rdma.remote_addr = (uintptr_t) b.bytes;
	wr.wr.rdma.rkey = b.mr->rkey;
	OK(ibv_query_rt_values_ex(a.context, &values));
	before = values.raw_clock.tv_nsec;
	wall = now(CLOCK_REALTIME);
	for (wr.wr_id = 0; wr.wr_id < 3; wr.wr_id++)
		OK(posted(&a, &wr));
	while (ibv_start_poll(cq, &none))
		;
	for (uint64_t id = 0; id < 3; id++) {
		CHECK(cq->wr_id == id && cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == IBV_WC_RDMA_WRITE);
		CHECK(ibv_wc_read_completion_ts(cq) >= before && ibv_wc_read_completion_ts(cq) >= last);
		last = ibv_wc_read_completion_ts(cq);
		CHECK(ibv_wc_read_completion_ts(cq) == last);
		CHECK(ibv_wc_read_completion_wallclock_ns(cq) >= wall && ibv_wc_read_completion_wallclock_ns(cq) <= now(CLOCK_REALTIME));
		CHECK(ibv_wc_read_cvlan(cq) == 0 && ibv_wc_read_flow_tag(cq) == 0);
		CHECK(ibv_wc_read_qp_num(cq) == a.qp->qp_num && ibv_wc_read_byte_len(cq) == 8);
		if (id < 2)
			while (ibv_next_poll(cq))
				;
		else
			CHECK(ibv_next_poll(cq) == ENOENT);
	}
	ibv_end_poll(cq);
	OK(ibv_query_rt_values_ex(a.context, &values));
	CHECK(last <= (uint64_t) values.raw_clock.tv_nsec && last <= now(CLOCK_MONOTONIC));
	values.comp_mask = 1 << 4;
	CHECK(ibv_query_rt_values_ex(a.context, &values) == EINVAL);
	/* What tag matching would add. */
	init.wc_flags |= IBV_WC_EX_WITH_TM_INFO;
	REFUSED(ibv_create_cq_ex(a.context, &init), EOPNOTSUPP);
	/* Events are not held back. */
	CHECK(device.cq_mod_caps.max_cq_count == 0 && device.cq_mod_caps.max_cq_period == 0);
	CHECK(ibv_modify_cq(a.cq, &(struct ibv_modify_cq_attr) { IBV_CQ_ATTR_MODERATE, { 1, 1 } }) == EOPNOTSUPP);
}

/* What becomes of one request, with an element of 8 bytes there and the peer's memory. */
static enum ibv_wc_status asked(struct end *end, struct end *peer, enum ibv_wr_opcode opcode, uint64_t at, uint32_t lkey)
{
	/* One of two, so that both have to be looked at. */
	struct ibv_sge sges[2] = { { (uintptr_t) end->bytes, 8, end->mr->lkey }, { at, 8, lkey } };
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t) peer->bytes, peer->mr->rkey } };

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t) peer->bytes;
		wr.wr.atomic.rkey = peer->mr->rkey;
		wr.wr.atomic.compare_add = 1;
	}
	wr.sg_list = opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_SEND ? sges : sges + 1;
	wr.num_sge = sges + 2 - wr.sg_list;
	OK(posted(end, &wr));
	return done(end).status;
}

/* Requests of `end` that name an address at which nothing is: they fail, and nobody dies. */
static void nowhere(struct end *end, struct end *peer, uint64_t at, uint32_t lkey)
{
	const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_sge sge = { at, 16, lkey };
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;

	for (int which = 0; which < 4; which++) {
		connected(end, peer, IBV_QPT_RC);
		received(peer, 3);
		CHECK(asked(end, peer, opcodes[which], at, lkey) == IBV_WC_LOC_PROT_ERR);
	}
	connected(end, peer, IBV_QPT_RC);
	OK(ibv_post_recv(end->qp, &recv, &bad));
	CHECK(asked(peer, end, IBV_WR_SEND, (uintptr_t) peer->bytes, peer->mr->lkey) == IBV_WC_SUCCESS);
	CHECK(completion(end, peer).status == IBV_WC_LOC_PROT_ERR);
	connected(end, peer, IBV_QPT_RC);
}

/* A region of the whole address space. */
static void implicit(void)
{
	const int rights = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
	struct end a = begun(IBV_QPT_RC, 16, ALL, NULL), b = begun(IBV_QPT_RC, 16, ALL, NULL);
	size_t page = sysconf(_SC_PAGESIZE), len = 4 << 20;
	/* Pages that are born shared, and such as are not. */
	char *large = mmap(NULL, len, rights, kind, -1, 0), *small = mmap(NULL, 4 * page, rights, kind, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(b.pd, NULL, SIZE_MAX, ALL | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND), *readable;
	struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
	char *const places[] = { large + 8, small + page, (char[64]) { 0 }, malloc(64), b.bytes };
	struct end all = b;
	struct ibv_sge sge;
	unsigned char there;
	uint32_t rkey;

	CHECK(mr && !mr->addr && mr->length == SIZE_MAX && mw && large != MAP_FAILED && small != MAP_FAILED);
	all.mr = mr;
	for (size_t at = 0; at < sizeof places / sizeof *places; at++) {
		char *place = (char *) (((uintptr_t) places[at] + 7) & -8);

		connected(&a, &b, IBV_QPT_RC);
		CHECK(written(&a, (uintptr_t) place, mr->rkey, "anywhere") == IBV_WC_SUCCESS && !memcmp(place, "anywhere", 8));
		all.bytes = place;
		/* Read, counted there, and sent from there. */
		CHECK(asked(&a, &all, IBV_WR_RDMA_READ, (uintptr_t) a.bytes + 8, a.mr->lkey) == IBV_WC_SUCCESS);
		CHECK(!memcmp(a.bytes, place, 8));
		memset(place, 0, 8);
		CHECK(asked(&a, &all, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t) a.bytes, a.mr->lkey) == IBV_WC_SUCCESS && *place == 1);
		memcpy(place, "outbound", 8);
		received(&a, 4);
		CHECK(asked(&b, &a, IBV_WR_SEND, (uintptr_t) place, mr->lkey) == IBV_WC_SUCCESS);
		CHECK(completion(&a, &b).byte_len == 16 && !memcmp(a.bytes + 512 + 8, "outbound", 8));
		/* What it reads itself comes there. */
		memcpy(a.bytes, "fetched.", 8);
		CHECK(asked(&b, &a, IBV_WR_RDMA_READ, (uintptr_t) place, mr->lkey) == IBV_WC_SUCCESS);
	}
	/* Mapped after it was registered, anew, for reading alone, and not any more. */
	for (int round = 0; round < 2; round++) {
		CHECK(mmap(small, page, rights, kind | MAP_FIXED, -1, 0) == small && !*small);
		CHECK(written(&a, (uintptr_t) small, mr->rkey, "anew....") == IBV_WC_SUCCESS && !memcmp(small, "anew....", 8));
	}
	CHECK(!mprotect(small, page, PROT_READ));
	CHECK(written(&a, (uintptr_t) small, mr->rkey, "readonly") == IBV_WC_REM_ACCESS_ERR && !memcmp(small, "anew....", 8));
	connected(&a, &b, IBV_QPT_RC);
	CHECK(asked(&b, &a, IBV_WR_RDMA_READ, (uintptr_t) small, mr->lkey) == IBV_WC_LOC_PROT_ERR);
	connected(&a, &b, IBV_QPT_RC);
	received(&a, 5);
	CHECK(asked(&b, &a, IBV_WR_SEND, (uintptr_t) small, mr->lkey) == IBV_WC_SUCCESS);
	OK(munmap(small, page));
	for (int which = 0; which < 4; which++) {
		const uint64_t holes[] = { (uintptr_t) small, 8, 1ull << 63, SIZE_MAX - 31 };

		connected(&a, &b, IBV_QPT_RC);
		CHECK(written(&a, holes[which], mr->rkey, "nowhere.") == IBV_WC_REM_ACCESS_ERR);
		connected(&a, &b, IBV_QPT_RC);
		all.bytes = (char *) (uintptr_t) holes[which];
		CHECK(asked(&a, &all, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t) a.bytes, a.mr->lkey) == IBV_WC_REM_ACCESS_ERR);
		nowhere(&b, &a, holes[which], mr->lkey);
	}
	/* A window over a part of it. */
	rkey = ibv_inc_rkey(mw->rkey);
	CHECK(bound(&b, mw, rkey, (uintptr_t) large + page, page, IBV_ACCESS_REMOTE_WRITE) != IBV_WC_SUCCESS);
	connected(&a, &b, IBV_QPT_RC);
	all.bytes = b.bytes;
	all.mr = mr;
	CHECK(bound(&all, mw, rkey, (uintptr_t) large + page, page, IBV_ACCESS_REMOTE_WRITE) == IBV_WC_SUCCESS);
	CHECK(written(&a, (uintptr_t) large + page, rkey, "windowed") == IBV_WC_SUCCESS && !memcmp(large + page, "windowed", 8));
	CHECK(written(&a, (uintptr_t) large, rkey, "outside.") == IBV_WC_REM_ACCESS_ERR);
	connected(&a, &b, IBV_QPT_RC);
	/* Pages that are to be used soon. */
	sge = (struct ibv_sge) { (uintptr_t) large + len / 2, page, mr->lkey };
	OK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	CHECK(!mincore(large + len / 2, page, &there) && there & 1);
	sge.addr = (uintptr_t) small;
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == EFAULT);
	OK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	/* Its rights are asked for. */
	readable = ibv_reg_mr(b.pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_READ);
	CHECK(readable);
	CHECK(written(&a, (uintptr_t) large, readable->rkey, "refused.") == IBV_WC_REM_ACCESS_ERR);
	/* It is registered anew like others, and all of it or a range. */
	CHECK(!ibv_rereg_mr(readable, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL | IBV_ACCESS_ON_DEMAND));
	connected(&a, &b, IBV_QPT_RC);
	CHECK(written(&a, (uintptr_t) large, readable->rkey, "granted.") == IBV_WC_SUCCESS && !memcmp(large, "granted.", 8));
	REFUSED(ibv_reg_mr(b.pd, NULL, SIZE_MAX, ALL), EINVAL);
	REFUSED(ibv_reg_mr(b.pd, NULL, page, ALL | IBV_ACCESS_ON_DEMAND), EINVAL);
	REFUSED(ibv_reg_mr_iova(b.pd, NULL, SIZE_MAX, page, ALL | IBV_ACCESS_ON_DEMAND), EINVAL);
	OK(ibv_dealloc_mw(mw));
	OK(ibv_dereg_mr(readable));
	OK(ibv_dereg_mr(mr));
	CHECK(written(&a, (uintptr_t) large, mr->rkey, "too late") == IBV_WC_REM_ACCESS_ERR);
}

/* Memory that is paged on demand. */
static void on_demand(void)
{
	struct end a = begun(IBV_QPT_RC, 16, ALL, NULL), b = begun(IBV_QPT_RC, 16, ALL, NULL);
	struct ibv_device_attr_ex device;
	size_t page = sysconf(_SC_PAGESIZE), len = 600 * page;
	char *bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *again;
	struct ibv_mr *mr, *readable;
	struct ibv_sge sge;
	struct ibv_recv_wr recv = { .wr_id = 30, .sg_list = &sge, .num_sge = 1 }, *bad;
	unsigned char there;

	OK(ibv_query_device_ex(a.context, NULL, &device));
	CHECK(device.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(device.odp_caps.per_transport_caps.rc_odp_caps == 0x3f && device.odp_caps.per_transport_caps.ud_odp_caps == 0x23);
	CHECK(bytes != MAP_FAILED);
	mr = ibv_reg_mr(b.pd, bytes, len, ALL | IBV_ACCESS_ON_DEMAND);
	CHECK(mr);
	connected(&a, &b, IBV_QPT_RC);
	CHECK(written(&a, (uintptr_t) bytes + page, mr->rkey, "on deman") == IBV_WC_SUCCESS && !memcmp(bytes + page, "on deman", 8));
	/* Whatever is mapped there is what a peer reaches. */
	again = mmap(bytes + page, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(again == bytes + page && !*again);
	CHECK(written(&a, (uintptr_t) bytes + page, mr->rkey, "mapped a") == IBV_WC_SUCCESS && !memcmp(again, "mapped a", 8));
	/* And where nothing is, nothing. */
	CHECK(!munmap(bytes + 2 * page, page));
	CHECK(written(&a, (uintptr_t) bytes + 2 * page, mr->rkey, "nowhere.") == IBV_WC_REM_ACCESS_ERR);
	/* Pages that are to be used soon. */
	sge = (struct ibv_sge) { (uintptr_t) bytes + 5 * page, page, mr->lkey };
	CHECK(!mincore(bytes + 5 * page, page, &there) && !(there & 1));
	OK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	CHECK(!mincore(bytes + 5 * page, page, &there) && there & 1);
	OK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	OK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &sge, 1));
	CHECK(ibv_advise_mr(b.pd, 9, 0, &sge, 1) == ENOTSUP);
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 1 << 4, &sge, 1) == EINVAL);
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 0) == EINVAL);
	CHECK(ibv_advise_mr(a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == ENOENT);
	sge.addr = (uintptr_t) bytes + 2 * page;
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == EFAULT);
	sge.addr = (uintptr_t) bytes + len - 1;
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EFAULT);
	sge.lkey = b.mr->lkey;
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == ENOENT);
	readable = ibv_reg_mr(b.pd, bytes, page, IBV_ACCESS_ON_DEMAND);
	CHECK(readable);
	sge = (struct ibv_sge) { (uintptr_t) bytes, 8, readable->lkey };
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1) == EPERM);
	OK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	nowhere(&b, &a, (uintptr_t) bytes + 2 * page, mr->lkey);
	/* A message takes the pages that its bytes go to, and no others of its RECV. */
	connected(&a, &b, IBV_QPT_RC);
	sge = (struct ibv_sge) { (uintptr_t) bytes + page, len - page, mr->lkey };
	OK(ibv_post_recv(b.qp, &recv, &bad));
	memcpy(a.bytes, "in a part of it", 16);
	CHECK(asked(&a, &b, IBV_WR_SEND, (uintptr_t) a.bytes + 8, a.mr->lkey) == IBV_WC_SUCCESS);
	CHECK(completion(&b, &a).status == IBV_WC_SUCCESS && !memcmp(bytes + page, "in a part of it", 16));
	CHECK(!mincore(bytes + 300 * page, page, &there) && !(there & 1));
	OK(ibv_dereg_mr(readable));
	OK(ibv_dereg_mr(mr));
}

/* A member of a group that does not hear itself. */
static void group(void)
{
	struct end a = begun(IBV_QPT_UD, 16, ALL, NULL), b = begun(IBV_QPT_UD, 16, ALL, NULL);
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 1, 1, 1 } };
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = group, .hop_limit = 1 } };
	struct ibv_qp_init_attr_ex init = {
		.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_UD, .pd = a.pd, .cap = { 16, 16, 1, 1, 32 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
	};
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .num_sge = 1,
		.sg_list = &(struct ibv_sge) { (uintptr_t) "to all", 6, 0 }, .wr.ud = { NULL, 0xffffff, 7 } };
	struct ibv_wc wc;

	wr.wr.ud.ah = ibv_create_ah(a.pd, &to);
	CHECK(wr.wr.ud.ah);
	for (int blocks = 0; blocks < 2; blocks++) {
		init.create_flags = blocks ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0;
		a.qp = ibv_create_qp_ex(a.context, &init);
		CHECK(a.qp);
		connected(&a, &b, IBV_QPT_UD);
		OK(ibv_attach_mcast(a.qp, &group, 0));
		OK(ibv_attach_mcast(b.qp, &group, 0));
		received(&a, 20);
		received(&b, 21);
		wr.wr_id = 22;
		OK(posted(&a, &wr));
		wc = completion(&b, &a);
		CHECK(wc.wr_id == 21 && wc.src_qp == a.qp->qp_num && !memcmp(b.bytes + 512 + 40, "to all", 6));
		wc = completion(&a, &b);
		if (!blocks) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			wc.wr_id += completion(&a, &b).wr_id - 20;
		}
		CHECK(wc.wr_id == 22 && wc.status == IBV_WC_SUCCESS);
		/* It has been where it would have been heard. */
		CHECK(!ibv_poll_cq(a.cq, 1, &wc));
		OK(ibv_detach_mcast(a.qp, &group, 0));
		OK(ibv_detach_mcast(b.qp, &group, 0));
		OK(ibv_destroy_qp(a.qp));
	}
	/* Only datagrams go to groups, and other flags are for other devices. */
	init.qp_type = IBV_QPT_RC;
	REFUSED(ibv_create_qp_ex(a.context, &init), EINVAL);
	init.qp_type = IBV_QPT_UD;
	init.create_flags |= IBV_QP_CREATE_SCATTER_FCS;
	REFUSED(ibv_create_qp_ex(a.context, &init), EOPNOTSUPP);
}

/* The Ethernet address behind a GID. */
static void ethernet(void)
{
	struct end end = begun(IBV_QPT_RC, 16, ALL, NULL);
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = end.gid } };
	uint8_t mac[6] = { 1, 2, 3, 4, 5, 6 }, zeros[6] = { 0 };
	uint16_t vlan = 0;

	/* Loopback's. */
	OK(ibv_resolve_eth_l2_from_gid(end.context, &to, mac, &vlan));
	CHECK(!memcmp(mac, zeros, 6) && vlan == 0xffff);
	to.grh.sgid_index = 200;
	CHECK(ibv_resolve_eth_l2_from_gid(end.context, &to, mac, NULL) == EINVAL);
	to.grh.sgid_index = 0;
	to.port_num = 9;
	CHECK(ibv_resolve_eth_l2_from_gid(end.context, &to, mac, NULL) == EINVAL);
	to.port_num = 1;
	to.is_global = 0;
	CHECK(ibv_resolve_eth_l2_from_gid(end.context, &to, mac, NULL) == EINVAL);
	/* What belongs to another process is not there. */
	REFUSED(ibv_import_device(0), EOPNOTSUPP);
	REFUSED(ibv_import_pd(end.context, 0), EOPNOTSUPP);
	REFUSED(ibv_import_mr(end.pd, 0), EOPNOTSUPP);
	REFUSED(ibv_import_dm(end.context, 0), EOPNOTSUPP);
	REFUSED(ibv_alloc_null_mr(end.pd), EOPNOTSUPP);
	CHECK(ibv_query_qp_data_in_order(end.qp, IBV_WR_SEND, 0) == 0);
}

int main(int argc, char **argv)
{
	const struct { const char *name; void (*part)(void); } parts[] = {
		{ "whole", whole }, { "first", first }, { "second", second }, { "under_way", under_way }, { "resize", resize }, { "limit", limit },
		{ "rereg", rereg }, { "domains", domains }, { "stamps", stamps }, { "on_demand", on_demand }, { "implicit", implicit },
		{ "group", group }, { "ethernet", ethernet },
	};

	CHECK(argc == 2);
	for (size_t at = 0; at < sizeof parts / sizeof *parts; at++)
		if (!strcmp(argv[1], parts[at].name)) {
			parts[at].part();
			printf("%s done\n", argv[1]);
			return 0;
		}
	fprintf(stderr, "no part %s\n", argv[1]);
	return 1;
}
