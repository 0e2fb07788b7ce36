/*
 * Programs that things go wrong with: `suffer NAME careful` expects it and goes on, `suffer NAME careless` takes for granted what
 * nobody has promised, and ends with 3 when it notices what has come of it.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "rc.h"

static int careless;

/* What a careless program finds in the end. */
static void found(const char *what)
{
	printf("found: %s\n", what);
	exit(3);
}

static int async_event(struct rc *rc)
{
	struct ibv_async_event event;

	CHECK(ibv_get_async_event(rc->context, &event) == 0);
	if (event.event_type == IBV_EVENT_QP_FATAL)
		CHECK(event.element.qp == rc->qp[0]);
	if (event.event_type == IBV_EVENT_PORT_ERR || event.event_type == IBV_EVENT_PORT_ACTIVE)
		CHECK(event.element.port_num == 1);
	ibv_ack_async_event(&event);
	return event.event_type;
}

static enum ibv_wc_status done(struct rc *rc, uint64_t id)
{
	struct ibv_wc wc = rc_poll(rc->cq);

	CHECK(wc.wr_id == id && wc.qp_num == rc->qp[0]->qp_num);
	return wc.status;
}

static enum ibv_wc_status writes(struct rc *rc, uint64_t id)
{
	CHECK(rc_post(rc, 0, IBV_WR_RDMA_WRITE, id, 64) == 0);
	return done(rc, id);
}

/* A server's answer comes before the request itself has completed. */
static void reply_first(struct rc *rc)
{
	int sent = 0, answered = 0;

	CHECK(rc_recv(rc, 0, 10) == 0 && rc_recv(rc, 1, 11) == 0);
	CHECK(rc_post(rc, 0, IBV_WR_SEND, 0, 8) == 0);
	while (!sent || !answered) {
		struct ibv_wc wc = rc_poll(rc->cq);

		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.wr_id == 11)
			CHECK(rc_post(rc, 1, IBV_WR_SEND, 1, 8) == 0);
		answered |= wc.wr_id == 10;
		sent |= wc.wr_id == 0;
		/* Who takes the request's buffer for its own by now writes into what may be sent again. */
		if (careless && answered && !sent)
			found("a reply before its request has completed");
	}
}

/* Completions that come late, and several at once. */
static void late(struct rc *rc)
{
	struct ibv_wc wc[DEPTH];
	struct ibv_cq *cq;
	void *context;

	/* The first one may have to make contact. */
	CHECK(writes(rc, 0) == IBV_WC_SUCCESS);
	CHECK(rc_post(rc, 0, IBV_WR_RDMA_WRITE, 1, 8) == 0);
	if (careless) {
		if (ibv_poll_cq(rc->cq, 1, wc) == 0)
			found("no completion at once");
		return;
	}
	/* A program that waits for one alone gets it. */
	CHECK(done(rc, 1) == IBV_WC_SUCCESS);
	for (int id = 2; id < 6; id++)
		CHECK(rc_post(rc, 0, IBV_WR_RDMA_WRITE, id, 8) == 0);
	for (int id = 2; id < 6; id++)
		CHECK(done(rc, id) == IBV_WC_SUCCESS);
	/* So does one that sleeps, however it does that. */
	for (int round = 0; round < 50; round++) {
		int got = 0;

		if (round % 2)
			CHECK(rc_post(rc, 0, IBV_WR_RDMA_WRITE, 100 + round, 8) == 0);
		if (round % 4 < 2)
			got = ibv_poll_cq(rc->cq, DEPTH, wc);
		CHECK(ibv_req_notify_cq(rc->cq, 0) == 0);
		if (round % 2 == 0)
			CHECK(rc_post(rc, 0, IBV_WR_RDMA_WRITE, 100 + round, 8) == 0);
		while (got == 0 && (got = ibv_poll_cq(rc->cq, DEPTH, wc)) == 0) {
			CHECK(ibv_get_cq_event(rc->channel, &cq, &context) == 0);
			ibv_ack_cq_events(cq, 1);
			CHECK(ibv_req_notify_cq(rc->cq, 0) == 0);
		}
		CHECK(got > 0 && wc[0].status == IBV_WC_SUCCESS);
	}
}

static void qp_fatal(struct rc *rc)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	CHECK(writes(rc, 0) == IBV_WC_SUCCESS && writes(rc, 1) == IBV_WC_SUCCESS);
	CHECK(rc_recv(rc, 0, 3) == 0);
	CHECK(rc_post(rc, 0, IBV_WR_RDMA_WRITE, 2, 8) == 0);
	for (int left = 2; left > 0; left--) {
		struct ibv_wc wc = rc_poll(rc->cq);
		if (careless && wc.status != IBV_WC_SUCCESS)
			found("a request that was flushed");
		CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
	}
	CHECK(async_event(rc) == IBV_EVENT_QP_FATAL);
	for (int at = 0; at < 2; at++)
		CHECK(ibv_modify_qp(rc->qp[at], &attr, IBV_QP_STATE) == 0);
	rc_connect(rc);
	CHECK(writes(rc, 3) == IBV_WC_SUCCESS);
}

static void not_ready(struct rc *rc)
{
	CHECK(rc_recv(rc, 1, 9) == 0);
	CHECK(rc_post(rc, 0, IBV_WR_SEND, 0, 8) == 0);
	enum ibv_wc_status status = done(rc, 0);
	if (careless && status != IBV_WC_SUCCESS)
		found("a receiver that is not ready");
	CHECK(status == IBV_WC_RNR_RETRY_EXC_ERR);
	CHECK(rc_post(rc, 0, IBV_WR_SEND, 1, 8) == 0);
	CHECK(done(rc, 1) == IBV_WC_WR_FLUSH_ERR);
}

static void no_memory(struct rc *rc)
{
	struct ibv_sge sge = { (uintptr_t) rc->memory, 8, rc->mr->lkey };
	struct ibv_send_wr wr[4], *bad = NULL;
	int count = 4;

	for (int at = 0; at < 4; at++) {
		wr[at] = (struct ibv_send_wr) { .wr_id = at, .next = at < 3 ? &wr[at + 1] : NULL, .sg_list = &sge,
			.num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED };
		wr[at].wr.rdma.remote_addr = (uintptr_t) rc->memory + LEN / 2;
		wr[at].wr.rdma.rkey = rc->mr->rkey;
	}
	CHECK(ibv_post_send(rc->qp[0], wr, &bad) == ENOMEM && bad == &wr[2]);
	if (careless) {
		/* Again, and all of it. */
		CHECK(ibv_post_send(rc->qp[0], wr, &bad) == 0);
		count += 2;
	} else {
		CHECK(ibv_post_send(rc->qp[0], bad, &bad) == 0);
	}
	for (int at = 0; at < count; at++) {
		struct ibv_wc wc = rc_poll(rc->cq);

		if (careless && wc.wr_id != (uint64_t) at)
			found("a request that was carried out twice");
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t) at);
	}
}

/* A reader that takes the last word for the end. */
static volatile uint64_t *word;

static uint64_t torn, holes;

static void *reader(void *arg)
{
	(void) arg;
	for (uint64_t round = 1; round <= 50; round++) {
		while (__atomic_load_n(&word[7], __ATOMIC_ACQUIRE) != round)
			sched_yield();
		for (int first = 1, missing = 1; missing; first = 0) {
			/* From the last to the first: what is seen to be there was there before. */
			missing = 0;
			for (int at = 6, is_behind = 0; at >= 0; at--) {
				int is_there = __atomic_load_n(&word[at], __ATOMIC_ACQUIRE) == round;

				holes += is_behind && !is_there;
				missing += !is_there;
				is_behind = is_there;
			}
			torn += first && missing;
		}
		__atomic_store_n(&word[8], round, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void placement(struct rc *rc)
{
	pthread_t thread;

	word = (volatile uint64_t *) (rc->memory + LEN / 2);
	if (careless)
		CHECK(pthread_create(&thread, NULL, reader, NULL) == 0);
	for (uint64_t round = 1; round <= 50; round++) {
		for (int at = 0; at < 8; at++)
			((uint64_t *) rc->memory)[at] = round;
		CHECK(writes(rc, round) == IBV_WC_SUCCESS);
		for (int at = 0; at < 8; at++)
			CHECK(word[at] == round);
		while (careless && __atomic_load_n(&word[8], __ATOMIC_ACQUIRE) != round)
			sched_yield();
	}
	if (careless) {
		CHECK(pthread_join(thread, NULL) == 0);
		if (torn)
			found(holes ? "a last word before the others, which came in no order" : "a last word before the others");
	}
	/* Whoever hears of a WRITE hears of all its bytes. */
	CHECK(rc_recv(rc, 1, 70) == 0);
	CHECK(rc_post(rc, 0, IBV_WR_RDMA_WRITE_WITH_IMM, 71, 64) == 0);
	for (int two = 0; two < 2; two++) {
		struct ibv_wc wc = rc_poll(rc->cq);

		CHECK(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 70 || wc.wr_id == 71));
		CHECK(wc.wr_id == 71 || (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 64));
	}
	/* What fails says why, although it went out in pieces. */
	struct ibv_sge sge = { (uintptr_t) rc->memory, 64, rc->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 77, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t) rc->memory;
	wr.wr.rdma.rkey = ~rc->mr->rkey;
	CHECK(ibv_post_send(rc->qp[0], &wr, &bad) == 0);
	CHECK(done(rc, 77) == IBV_WC_REM_ACCESS_ERR);
}

static enum ibv_port_state port_state(struct rc *rc)
{
	struct ibv_port_attr attr;

	CHECK(ibv_query_port(rc->context, 1, &attr) == 0);
	return attr.state;
}

static void port_down(struct rc *rc)
{
	struct ibv_wc wc;

	CHECK(writes(rc, 0) == IBV_WC_SUCCESS);
	CHECK(rc_post(rc, 0, IBV_WR_RDMA_WRITE, 1, 8) == 0);
	CHECK(port_state(rc) == IBV_PORT_DOWN && async_event(rc) == IBV_EVENT_PORT_ERR);
	if (careless && ibv_poll_cq(rc->cq, 1, &wc) == 0)
		found("a request that waits for its port");
	CHECK(done(rc, 1) == IBV_WC_SUCCESS);
	CHECK(async_event(rc) == IBV_EVENT_PORT_ACTIVE && port_state(rc) == IBV_PORT_ACTIVE);
	CHECK(writes(rc, 2) == IBV_WC_SUCCESS);
}

static void port_gone(struct rc *rc)
{
	CHECK(writes(rc, 0) == IBV_WC_SUCCESS);
	enum ibv_wc_status status = writes(rc, 1);
	if (careless && status != IBV_WC_SUCCESS)
		found("a request that nobody answers");
	CHECK(status == IBV_WC_RETRY_EXC_ERR && async_event(rc) == IBV_EVENT_PORT_ERR);
	CHECK(port_state(rc) == IBV_PORT_DOWN);
}

static void device_fatal(struct rc *rc)
{
	CHECK(rc_recv(rc, 1, 5) == 0);
	CHECK(rc_post(rc, 0, IBV_WR_RDMA_WRITE, 0, 8) == 0);
	if (careless && rc_poll(rc->cq).status != IBV_WC_SUCCESS)
		found("a device that has failed");
	CHECK(async_event(rc) == IBV_EVENT_DEVICE_FATAL);
	for (int left = 2; left > 0; left--)
		CHECK(rc_poll(rc->cq).status == IBV_WC_WR_FLUSH_ERR);
	CHECK(!ibv_alloc_pd(rc->context) && errno == EIO);
	CHECK(rc_close(rc) == 0);
	/* It is to be opened again. */
	*rc = rc_open();
}

static void revoked(struct rc *rc)
{
	CHECK(writes(rc, 0) == IBV_WC_SUCCESS);
	enum ibv_wc_status status = writes(rc, 1);
	if (careless && status != IBV_WC_SUCCESS)
		found("a key that is good no more");
	CHECK(status == IBV_WC_REM_ACCESS_ERR && writes(rc, 2) == IBV_WC_WR_FLUSH_ERR);
}

static void spurious(struct rc *rc)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;

	CHECK(ibv_req_notify_cq(rc->cq, 0) == 0);
	CHECK(ibv_get_cq_event(rc->channel, &cq, &context) == 0 && cq == rc->cq);
	ibv_ack_cq_events(cq, 1);
	if (careless && ibv_poll_cq(rc->cq, 1, &wc) == 0)
		found("an event for nothing");
	CHECK(ibv_poll_cq(rc->cq, 1, &wc) == 0);
	CHECK(rc_post(rc, 0, IBV_WR_RDMA_WRITE, 1, 8) == 0);
	while (ibv_poll_cq(rc->cq, 1, &wc) == 0) {
		CHECK(ibv_req_notify_cq(rc->cq, 0) == 0);
		CHECK(ibv_get_cq_event(rc->channel, &cq, &context) == 0);
		ibv_ack_cq_events(cq, 1);
	}
	CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS);
}

static void frozen(struct rc *rc)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	int polls = 0;

	CHECK(writes(rc, 0) == IBV_WC_SUCCESS);
	CHECK(rc_post(rc, 0, IBV_WR_RDMA_WRITE, 1, 8) == 0);
	while (ibv_poll_cq(rc->cq, 1, &wc) == 0)
		if (++polls > 100 && careless)
			found("a device that stands still");
	/* One call was the post. */
	CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS && polls == 198);
	/* Who sleeps is not kept. */
	CHECK(rc_post(rc, 0, IBV_WR_RDMA_WRITE, 2, 8) == 0);
	CHECK(ibv_req_notify_cq(rc->cq, 0) == 0);
	CHECK(ibv_get_cq_event(rc->channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
	CHECK(done(rc, 2) == IBV_WC_SUCCESS);
}

/* A WRITE into the memory of another device. */
static int writes_to(struct rc *from, struct rc *to, int at, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t) from->memory, 8, from->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;

	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t) to->memory + LEN - 8;
	wr.wr.rdma.rkey = to->mr->rkey;
	*(volatile uint64_t *) from->memory = id;
	return ibv_post_send(from->qp[at], &wr, &bad);
}

/* A peer writes into the memory of a device that stands still. */
static void frozen_peer(struct rc *rc)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct rc peer = rc_open(), *both[] = { rc, &peer };
	volatile uint64_t *last = (volatile uint64_t *) (rc->memory + LEN - 8);
	union ibv_gid gid;
	struct ibv_wc wc;

	for (int at = 0; at < 4; at++)
		CHECK(ibv_modify_qp(both[at / 2]->qp[at % 2], &attr, IBV_QP_STATE) == 0);
	for (int at = 0; at < 4; at++) {
		struct rc *to = both[!(at / 2)];
		struct ibv_qp *qp = both[at / 2]->qp[at % 2];

		CHECK(ibv_query_gid(to->context, 1, 0, &gid) == 0);
		rc_to_rtr(qp, &gid, to->qp[at % 2]->qp_num);
		/* It is given up after half a second, or never. */
		attr = (struct ibv_qp_attr) { .qp_state = IBV_QPS_RTS, .timeout = careless ? 16 : 0, .retry_cnt = 1, .max_rd_atomic = 1 };
		CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT
				    | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	}
	CHECK(writes_to(rc, &peer, 0, 0) == 0 && done(rc, 0) == IBV_WC_SUCCESS);
	CHECK(writes_to(&peer, rc, 1, 7) == 0);
	wc = rc_poll(peer.cq);
	CHECK(wc.wr_id == 7 && (careless || wc.status == IBV_WC_SUCCESS));
	/* At this one it stops. */
	CHECK(writes_to(rc, &peer, 0, 1) == 0);
	CHECK(writes_to(&peer, rc, 1, 8) == 0);
	if (careless) {
		if (rc_poll(peer.cq).status == IBV_WC_RETRY_EXC_ERR)
			found("a peer that stands still");
		return;
	}
	for (int polls = 0; polls < 1000; polls++)
		CHECK(ibv_poll_cq(peer.cq, 1, &wc) == 0 && *last == 7);
	CHECK(done(rc, 1) == IBV_WC_SUCCESS);
	wc = rc_poll(peer.cq);
	CHECK(wc.wr_id == 8 && wc.status == IBV_WC_SUCCESS && *last == 8);
}

static void small(struct rc *rc)
{
	struct ibv_qp_init_attr init = { .send_cq = rc->cq, .recv_cq = rc->cq, .qp_type = IBV_QPT_RC };
	struct ibv_device_attr attr;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	int qps = 2, mrs = 1;

	CHECK(ibv_query_device(rc->context, &attr) == 0);
	CHECK(attr.max_qp == 4 && attr.max_qp_wr == 16 && attr.max_sge == 1 && attr.max_mr == 4 && attr.max_cqe == 32);
	init.cap.max_send_wr = init.cap.max_recv_wr = attr.max_qp_wr + 1;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	qp = ibv_create_qp(rc->pd, &init);
	if (careless && !qp)
		found("a queue that is longer than the device allows");
	CHECK(!qp && errno == EINVAL);
	init.cap.max_send_wr = init.cap.max_recv_wr = attr.max_qp_wr;
	init.cap.max_inline_data = 1;
	CHECK(!ibv_create_qp(rc->pd, &init) && errno == EINVAL);
	init.cap.max_inline_data = 0;
	init.cap.max_send_sge = 2;
	CHECK(!ibv_create_qp(rc->pd, &init) && errno == EINVAL);
	init.cap.max_send_sge = 1;
	CHECK(!ibv_create_cq(rc->context, attr.max_cqe + 1, NULL, NULL, 0) && errno == EINVAL);
	while ((qp = ibv_create_qp(rc->pd, &init)))
		qps++;
	CHECK(errno == ENOMEM && qps == attr.max_qp);
	while ((mr = ibv_reg_mr(rc->pd, rc->memory, 64, 0)))
		mrs++;
	CHECK(errno == ENOMEM && mrs == attr.max_mr);
	/* What is given back can be had again. */
	CHECK(ibv_dereg_mr(rc->mr) == 0);
	CHECK((rc->mr = ibv_reg_mr(rc->pd, rc->memory, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	CHECK(writes(rc, 1) == IBV_WC_SUCCESS);
}

static void refuse_mr(struct rc *rc)
{
	struct ibv_mr *mr = ibv_reg_mr(rc->pd, rc->memory, 64, 0);

	if (careless && !mr)
		found("a registration that was refused");
	CHECK(!mr && errno == ENOMEM);
	CHECK((mr = ibv_reg_mr(rc->pd, rc->memory, 64, 0)));
	CHECK(ibv_dereg_mr(mr) == 0);
}

/* A peer that says that it is there before its queue pair is ready. */
static atomic_int is_announced;

static void *gets_ready(void *arg)
{
	struct rc *rc = arg;
	union ibv_gid gid;

	CHECK(ibv_query_gid(rc->context, 1, 0, &gid) == 0);
	if (careless)
		is_announced = 1;
	rc_to_rtr(rc->qp[1], &gid, rc->qp[0]->qp_num);
	is_announced = 1;
	return NULL;
}

static void late_rtr(struct rc *rc)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	union ibv_gid gid;
	pthread_t thread;

	CHECK(writes(rc, 0) == IBV_WC_SUCCESS);
	for (int at = 0; at < 2; at++)
		CHECK(ibv_modify_qp(rc->qp[at], &attr, IBV_QP_STATE) == 0);
	CHECK(ibv_query_gid(rc->context, 1, 0, &gid) == 0);
	rc_to_rtr(rc->qp[0], &gid, rc->qp[1]->qp_num);
	/* It is given up after a few milliseconds. */
	attr = (struct ibv_qp_attr) { .qp_state = IBV_QPS_RTS, .timeout = 8, .retry_cnt = 1, .max_rd_atomic = 1 };
	CHECK(ibv_modify_qp(rc->qp[0], &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY
			    | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
	CHECK(pthread_create(&thread, NULL, gets_ready, rc) == 0);
	while (!is_announced)
		sched_yield();
	enum ibv_wc_status status = writes(rc, 1);
	if (careless && status == IBV_WC_RETRY_EXC_ERR)
		found("a peer that is not ready yet");
	CHECK(status == IBV_WC_SUCCESS);
	CHECK(pthread_join(thread, NULL) == 0);
}

/* A hundred requests, each given up or posted again as it comes. */
static void chatter(struct rc *rc)
{
	for (int id = 0; id < 100; id++) {
		int posted = rc_post(rc, 0, IBV_WR_RDMA_WRITE, id, 8);

		if (posted == ENOMEM)
			posted = rc_post(rc, 0, IBV_WR_RDMA_WRITE, id, 8);
		CHECK(posted == 0);
		if (done(rc, id) != IBV_WC_SUCCESS)
			return;
	}
}

static const struct {
	const char *name;
	void (*run)(struct rc *);
} scenarios[] = {
	{ "reply-first", reply_first }, { "late", late }, { "qp-fatal", qp_fatal }, { "rnr", not_ready },
	{ "post-enomem", no_memory }, { "placement", placement }, { "port-down", port_down }, { "port-gone", port_gone },
	{ "device-fatal", device_fatal }, { "revoke", revoked }, { "spurious", spurious }, { "freeze", frozen },
	{ "small", small }, { "late-rtr", late_rtr }, { "frozen-peer", frozen_peer },
	{ "refuse-mr", refuse_mr }, { "chatter", chatter },
};

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	careless = !strcmp(argv[2], "careless");
	for (size_t at = 0; at < sizeof scenarios / sizeof scenarios[0]; at++) {
		if (strcmp(argv[1], scenarios[at].name))
			continue;
		struct rc rc = rc_open();
		scenarios[at].run(&rc);
		puts("all is well");
		return 0;
	}
	return 2;
}
