/* What a forked child may do with what it inherits: nothing, and it hears so at once. */
#include "rc.h"

static void expect(pid_t child)
{
	int status;

	CHECK(child > 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void sends(struct rc *rc, uint64_t id)
{
	CHECK(rc_recv(rc, 1, id) == 0);
	CHECK(rc_post(rc, 0, IBV_WR_SEND, id, 8) == 0);
	for (int left = 2; left > 0; left--) {
		struct ibv_wc wc = rc_poll(rc->cq);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == id);
	}
}

/* A child that goes on with its parent's objects. */
static void uses_all(struct rc *rc)
{
	struct pollfd fds[2] = { { rc->channel->fd, POLLIN, 0 }, { rc->context->async_fd, POLLIN, 0 } };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init = { .send_cq = rc->cq, .recv_cq = rc->cq, .qp_type = IBV_QPT_RC };
	struct ibv_async_event event;
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;

	CHECK(ibv_poll_cq(rc->cq, 1, &wc) < 0);
	CHECK(ibv_req_notify_cq(rc->cq, 0) == EIO);
	CHECK(ibv_post_send(rc->qp[0], &wr, &bad) == EIO && bad == &wr);
	CHECK(rc_recv(rc, 0, 1) == EIO);
	/* Who sleeps wakes, and hears it. */
	CHECK(poll(fds, 2, -1) == 2);
	CHECK(ibv_get_cq_event(rc->channel, &cq, &context) == -1 && errno == ENODEV);
	CHECK(ibv_get_async_event(rc->context, &event) == -1 && errno == ENODEV);
	CHECK(ibv_modify_qp(rc->qp[0], &attr, IBV_QP_STATE) == ENODEV);
	CHECK(!ibv_alloc_pd(rc->context) && errno == ENODEV);
	CHECK(!ibv_reg_mr(rc->pd, rc->memory, LEN, 0) && errno == ENODEV);
	CHECK(!ibv_create_cq(rc->context, 1, NULL, NULL, 0) && errno == ENODEV);
	CHECK(!ibv_create_comp_channel(rc->context) && errno == ENODEV);
	CHECK(!ibv_create_qp(rc->pd, &init) && errno == ENODEV);
	/* What it gives back is its parent's still. */
	CHECK(rc_close(rc) == 0);
}

static void composes(struct rc *rc)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = rc->cq, .recv_cq = rc->cq, .qp_type = IBV_QPT_RC, .pd = rc->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_cq_init_attr_ex cq_init = { .cqe = 8, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(rc->context, &cq_init);
	struct ibv_qp *qp = ibv_create_qp_ex(rc->context, &init);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	struct ibv_poll_cq_attr attr = { 0 };
	pid_t child;

	CHECK(cq && ex);
	/* As another thread may be composing while this one forks. */
	ibv_wr_start(ex);
	if ((child = fork()) == 0) {
		CHECK(ibv_start_poll(cq, &attr) == EIO);
		for (int twice = 0; twice < 2; twice++) {
			ibv_wr_start(ex);
			ibv_wr_send(ex);
			ibv_wr_set_sge(ex, rc->mr->lkey, (uintptr_t) rc->memory, 8);
			CHECK(ibv_wr_complete(ex) == EIO);
		}
		_exit(0);
	}
	ibv_wr_abort(ex);
	expect(child);
	CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

int main(int argc, char **argv)
{
	struct rc rc = rc_open();
	pid_t child;

	(void) argc;
	sends(&rc, 1);
	if ((child = fork()) == 0) {
		uses_all(&rc);
		/* The device opened anew works, and so do that child's own children. */
		rc = rc_open();
		sends(&rc, 7);
		if ((child = fork()) == 0) {
			struct ibv_wc wc;
			CHECK(ibv_poll_cq(rc.cq, 1, &wc) < 0);
			_exit(0);
		}
		expect(child);
		sends(&rc, 8);
		/* By way of everything that is to be done at an end. */
		exit(rc_close(&rc));
	}
	expect(child);
	sends(&rc, 2);
	composes(&rc);
	/* As Python's multiprocessing: the child ends without a word to its parent's objects. */
	if ((child = fork()) == 0)
		exit(0);
	expect(child);
	if ((child = fork()) == 0) {
		execl("/bin/true", argv[0], NULL);
		_exit(1);
	}
	expect(child);
	sends(&rc, 3);
	CHECK(rc_close(&rc) == 0);
	puts("all is well");
	return 0;
}
