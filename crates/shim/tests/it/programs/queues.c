/* Queues: all posted or nothing, other sizes, a limit, times of completions. */
#define _GNU_SOURCE
#include <poll.h>
#include <time.h>

#include "ends.h"

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

int main(int argc, char **argv)
{
	const struct part parts[] = { { "whole", whole }, { "resize", resize }, { "limit", limit }, { "stamps", stamps } };

	return run_part(parts, sizeof parts / sizeof *parts, argc, argv);
}
