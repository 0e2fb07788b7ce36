/* A process that talks to itself: two reliable queue pairs, connected to each other. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define CHECK(is) \
	do { \
		if (!(is)) { \
			fprintf(stderr, "line %d: not %s (errno %d)\n", __LINE__, #is, errno); \
			exit(1); \
		} \
	} while (0)

#define DEPTH 16
#define LEN 4096

struct rc {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	/* Send and receive completions of both. */
	struct ibv_cq *cq;
	struct ibv_qp *qp[2];
	struct ibv_mr *mr;
	char *memory;
};

static inline void rc_to_rtr(struct ibv_qp *qp, const union ibv_gid *gid, uint32_t to)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	attr = (struct ibv_qp_attr) { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = to };
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.dgid = *gid;
	attr.ah_attr.grh.hop_limit = 1;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
			    | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
}

static inline void rc_to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };

	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY
			    | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static inline void rc_connect(struct rc *rc)
{
	union ibv_gid gid;

	CHECK(ibv_query_gid(rc->context, 1, 0, &gid) == 0);
	for (int at = 0; at < 2; at++) {
		rc_to_rtr(rc->qp[at], &gid, rc->qp[!at]->qp_num);
		rc_to_rts(rc->qp[at]);
	}
}

static inline struct rc rc_open(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct rc rc = { .context = ibv_open_device(list[0]) };

	CHECK(rc.context);
	ibv_free_device_list(list);
	CHECK((rc.pd = ibv_alloc_pd(rc.context)));
	CHECK((rc.channel = ibv_create_comp_channel(rc.context)));
	CHECK((rc.cq = ibv_create_cq(rc.context, 2 * DEPTH, NULL, rc.channel, 0)));
	for (int at = 0; at < 2; at++) {
		struct ibv_qp_init_attr init = {
			.send_cq = rc.cq, .recv_cq = rc.cq, .qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
		};
		CHECK((rc.qp[at] = ibv_create_qp(rc.pd, &init)));
	}
	CHECK(posix_memalign((void **) &rc.memory, 4096, LEN) == 0);
	memset(rc.memory, 0, LEN);
	CHECK((rc.mr = ibv_reg_mr(rc.pd, rc.memory, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
				  | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)));
	rc_connect(&rc);
	return rc;
}

/* A request for the first `len` bytes, which WRITEs go behind. */
static inline int rc_post(struct rc *rc, int at, enum ibv_wr_opcode opcode, uint64_t id, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t) rc->memory, len, rc->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;

	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t) rc->memory + LEN / 2;
	wr.wr.rdma.rkey = rc->mr->rkey;
	return ibv_post_send(rc->qp[at], &wr, &bad);
}

static inline int rc_recv(struct rc *rc, int at, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t) rc->memory, LEN, rc->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(rc->qp[at], &wr, &bad);
}

/* Polls until there is a completion. */
static inline struct ibv_wc rc_poll(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int found;

	while ((found = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	CHECK(found == 1);
	return wc;
}

static inline int rc_close(struct rc *rc)
{
	return ibv_destroy_qp(rc->qp[0]) | ibv_destroy_qp(rc->qp[1]) | ibv_dereg_mr(rc->mr) | ibv_destroy_cq(rc->cq)
		| ibv_destroy_comp_channel(rc->channel) | ibv_dealloc_pd(rc->pd) | ibv_close_device(rc->context);
}
