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

/* What sends datagrams to a group that it is in itself. */
struct member {
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	union ibv_gid group;
};

static struct member join(struct rc *rc)
{
	struct member member = { .group = { .raw = { [0] = 0xff, [1] = 0x02, [10] = 0xff, [11] = 0xff, [12] = 224, [15] = 77 } } };
	struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7 };
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .hop_limit = 1 } };

	CHECK((member.srq = ibv_create_srq(rc->pd, &srq_init)));
	struct ibv_qp_init_attr init = {
		.send_cq = rc->cq, .recv_cq = rc->cq, .srq = member.srq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
	};
	CHECK((member.qp = ibv_create_qp(rc->pd, &init)));
	CHECK(ibv_modify_qp(member.qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(member.qp, &attr, IBV_QP_STATE) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(member.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
	CHECK(ibv_attach_mcast(member.qp, &member.group, 0) == 0);
	to.grh.dgid = member.group;
	CHECK((member.ah = ibv_create_ah(rc->pd, &to)));
	return member;
}

/* It hears what it sends to its group. */
static void hears(struct rc *rc, struct member *member)
{
	struct ibv_sge sge = { (uintptr_t) rc->memory, 8, rc->mr->lkey }, room = { (uintptr_t) rc->memory, 64, rc->mr->lkey };
	struct ibv_recv_wr recv = { .wr_id = 5, .sg_list = &room, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .wr_id = 5, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				    .wr.ud = { member->ah, 0xffffff, 7 } }, *bad;

	CHECK(ibv_post_srq_recv(member->srq, &recv, &bad_recv) == 0);
	CHECK(ibv_post_send(member->qp, &send, &bad) == 0);
	for (int left = 2; left > 0; left--)
		CHECK(rc_poll(rc->cq).status == IBV_WC_SUCCESS);
}

static void leave(struct member *member)
{
	CHECK(ibv_detach_mcast(member->qp, &member->group, 0) == 0);
	CHECK(ibv_destroy_ah(member->ah) == 0 && ibv_destroy_qp(member->qp) == 0 && ibv_destroy_srq(member->srq) == 0);
}

/* A child that goes on with its parent's objects. */
static void uses_all(struct rc *rc, struct member *member)
{
	struct pollfd fds[2] = { { rc->channel->fd, POLLIN, 0 }, { rc->context->async_fd, POLLIN, 0 } };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND }, *bad = NULL;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp_init_attr init = { .send_cq = rc->cq, .recv_cq = rc->cq, .qp_type = IBV_QPT_RC };
	struct ibv_srq_attr srq_attr;
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
	CHECK(ibv_query_srq(member->srq, &srq_attr) == ENODEV);
	CHECK(ibv_attach_mcast(member->qp, &member->group, 0) == ENODEV);
	CHECK(ibv_detach_mcast(member->qp, &member->group, 0) == 0);
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
	/* A child that goes on where this thread was. */
	if ((child = fork()) == 0) {
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, rc->mr->lkey, (uintptr_t) rc->memory, 8);
		CHECK(ibv_wr_complete(ex) == EIO);
		ibv_wr_abort(ex);
		_exit(0);
	}
	expect(child);
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
	struct member member = join(&rc);
	pid_t child;

	(void) argc;
	sends(&rc, 1);
	hears(&rc, &member);
	if ((child = fork()) == 0) {
		uses_all(&rc, &member);
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
	hears(&rc, &member);
	leave(&member);
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
