/* Memory windows. */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>

#include "ends.h"

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

int main(int argc, char **argv)
{
	const struct part parts[] = { { "first", first }, { "second", second }, { "under_way", under_way } };

	return run_part(parts, sizeof parts / sizeof *parts, argc, argv);
}
