/* Makes the mistake that its first argument names; with a second one ("right") it does the same without it. Both ends of each
 * connection are in this process. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(is) \
	do { \
		if (!(is)) { \
			fprintf(stderr, "line %d: not %s (errno %d)\n", __LINE__, #is, errno); \
			exit(1); \
		} \
	} while (0)

#define LEN 4096

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char *memory;
	struct ibv_mr *mr;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static union ibv_gid gid;
static int right;
static enum ibv_mtu other_mtu = IBV_MTU_1024;
static uint32_t other_psn = 7;
static int access_of_a = IBV_ACCESS_LOCAL_WRITE;

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list && list[0]);
	CHECK((context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	CHECK((pd = ibv_alloc_pd(context)));
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
}

static void make(struct end *end, int access, int cqe, int recvs, struct ibv_comp_channel *channel)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = recvs, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 },
	};

	CHECK(posix_memalign((void **) &end->memory, LEN, 2 * LEN) == 0);
	memset(end->memory, 0, 2 * LEN);
	CHECK((end->mr = ibv_reg_mr(pd, end->memory, 2 * LEN, access)));
	CHECK((end->cq = ibv_create_cq(context, cqe, NULL, channel, 0)));
	init.send_cq = init.recv_cq = end->cq;
	CHECK((end->qp = ibv_create_qp(pd, &init)));
}

static void to_init(struct end *end)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
}

static void to_rts(struct end *end, struct end *other, enum ibv_mtu mtu, uint32_t psn, uint32_t rq_psn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = other->qp->qp_num, .rq_psn = rq_psn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } },
	};

	CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = psn;
	attr.timeout = 14;
	attr.retry_cnt = 1;
	attr.rnr_retry = 1;
	attr.max_rd_atomic = 1;
	CHECK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct end a, b;

static void make_both(int cqe, struct ibv_comp_channel *channel)
{
	open_device();
	make(&a, access_of_a, cqe, 8, channel);
	make(&b, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, 64, 8, NULL);
}

static void connect_both(void)
{
	to_init(&a);
	to_init(&b);
	to_rts(&a, &b, IBV_MTU_1024, 5, 7);
	to_rts(&b, &a, other_mtu, other_psn, 5);
}

static void begin(void)
{
	make_both(64, NULL);
	connect_both();
}

static void end(void)
{
	if (a.qp)
		CHECK(ibv_destroy_qp(a.qp) == 0);
	CHECK(ibv_destroy_qp(b.qp) == 0);
	if (a.mr)
		CHECK(ibv_dereg_mr(a.mr) == 0);
	CHECK(ibv_dereg_mr(b.mr) == 0);
	CHECK(ibv_destroy_cq(a.cq) == 0);
	CHECK(ibv_destroy_cq(b.cq) == 0);
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
}

static int post(struct end *from, uint64_t id, enum ibv_wr_opcode opcode, unsigned flags, uint32_t len, uint64_t remote)
{
	struct ibv_sge sge = { (uintptr_t) from->memory, len, from->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags,
		.wr.rdma = { .remote_addr = remote, .rkey = b.mr->rkey },
	};

	return ibv_post_send(from->qp, &wr, &bad);
}

static int post_recv(struct end *to, uint64_t id, size_t at)
{
	struct ibv_sge sge = { (uintptr_t) to->memory + at, 64, to->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	return ibv_post_recv(to->qp, &wr, &bad);
}

static struct ibv_wc wait_for(struct end *end)
{
	struct ibv_wc wc;
	int found;

	while ((found = ibv_poll_cq(end->cq, 1, &wc)) == 0)
		;
	CHECK(found == 1);
	return wc;
}

static uint64_t place(void)
{
	return (uintptr_t) b.memory;
}

static void changed_bytes(void)
{
	begin();
	CHECK(post(&a, 7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	if (!right)
		a.memory[3]++;
	CHECK(wait_for(&a).status == IBV_WC_SUCCESS);
	a.memory[4]++;
}

static void changed_buffer(void)
{
	changed_bytes();
	end();
}

/* A peer may have been the one. */
static void changed_by_somebody(void)
{
	access_of_a |= IBV_ACCESS_REMOTE_WRITE;
	changed_buffer();
}

static void failed_local(void)
{
	struct ibv_wc wc;

	begin();
	CHECK(post(&a, 8, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, right ? 64 : 2 * LEN + 8, place()) == 0);
	wc = wait_for(&a);
	CHECK(wc.status == (right ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR));
	if (!right)
		CHECK(wc.opcode == 0x7badbad5 && wc.byte_len == 0x7badbad5);
	end();
}

static void failed_deregistered(void)
{
	begin();
	CHECK(ibv_dereg_mr(a.mr) == 0);
	if (right)
		CHECK((a.mr = ibv_reg_mr(pd, a.memory, 2 * LEN, access_of_a)));
	CHECK(post(&a, 8, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	CHECK(wait_for(&a).status == (right ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR));
	if (!right)
		a.mr = NULL;
	end();
}

static void failed_remote(void)
{
	begin();
	CHECK(post(&a, 9, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place() + (right ? 0 : 2 * LEN)) == 0);
	CHECK(wait_for(&a).status == (right ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR));
	end();
}

static void no_recv(void)
{
	begin();
	if (right)
		CHECK(post_recv(&b, 1, 0) == 0);
	CHECK(post(&a, 10, IBV_WR_SEND, IBV_SEND_SIGNALED, 64, 0) == 0);
	CHECK(wait_for(&a).status == (right ? IBV_WC_SUCCESS : IBV_WC_RNR_RETRY_EXC_ERR));
	if (right)
		CHECK(wait_for(&b).status == IBV_WC_SUCCESS);
	end();
}

static void overlapping_recvs(void)
{
	begin();
	CHECK(post_recv(&b, 1, 0) == 0);
	CHECK(post_recv(&b, 2, right ? 64 : 63) == 0);
	end();
}

static void send_from_recv(void)
{
	begin();
	CHECK(post_recv(&a, 1, right ? LEN : 32) == 0);
	CHECK(post(&a, 2, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	CHECK(wait_for(&a).status == IBV_WC_SUCCESS);
	end();
}

static void unmapped(void)
{
	size_t len = 2 << 20;
	char *memory;
	struct ibv_mr *mr;

	begin();
	memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	CHECK((mr = ibv_reg_mr(pd, memory, len, IBV_ACCESS_LOCAL_WRITE)));
	if (right)
		CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(munmap(memory, len) == 0);
	if (!right)
		CHECK(ibv_dereg_mr(mr) == 0);
	end();
}

/* Far from all others, so that what is freed lies in between. */
static void heap(void)
{
	char *memory = malloc(LEN);
	struct ibv_mr *mr;
	int count;

	CHECK(memory && (mr = ibv_reg_mr(pd, memory, LEN, IBV_ACCESS_LOCAL_WRITE)));
	for (count = 100; count < 100000; count *= 2)
		free(malloc(count));
	CHECK(ibv_dereg_mr(mr) == 0);
	free(memory);
}

static void freed(void)
{
	/* So long that libc unmaps it by itself. */
	size_t len = 1 << 20;
	char *memory;
	struct ibv_mr *mr;

	begin();
	heap();
	CHECK((memory = malloc(len)));
	CHECK((mr = ibv_reg_mr(pd, memory, len, IBV_ACCESS_LOCAL_WRITE)));
	if (right)
		CHECK(ibv_dereg_mr(mr) == 0);
	free(memory);
	if (!right)
		CHECK(ibv_dereg_mr(mr) == 0);
	end();
}

/* By a call that nobody sees. */
static void unmapped_unseen(void)
{
	size_t len = 1 << 16;
	char *memory;
	struct ibv_mr *mr;

	begin();
	memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	CHECK((mr = ibv_reg_mr(pd, memory, len, IBV_ACCESS_LOCAL_WRITE)));
	if (right)
		CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(syscall(SYS_munmap, memory, len) == 0);
	if (!right)
		CHECK(ibv_dereg_mr(mr) == 0);
	end();
}

/* Its RECV is still posted. */
static void unmapped_in_use(void)
{
	size_t len = 2 << 20;
	struct end kept;

	begin();
	kept = b;
	b.memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(b.memory != MAP_FAILED);
	CHECK((b.mr = ibv_reg_mr(pd, b.memory, len, IBV_ACCESS_LOCAL_WRITE)));
	CHECK(post_recv(&b, 1, 0) == 0);
	if (right) {
		CHECK(post(&a, 2, IBV_WR_SEND, IBV_SEND_SIGNALED, 64, 0) == 0);
		wait_for(&a);
		wait_for(&b);
		CHECK(ibv_dereg_mr(b.mr) == 0);
	}
	CHECK(munmap(b.memory, len) == 0);
	if (!right)
		CHECK(ibv_dereg_mr(b.mr) == 0);
	b = kept;
	end();
}

static void on_alarm(int signal)
{
	(void) signal;
}

static void undrained_sleep(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct sigaction action = { .sa_handler = on_alarm };
	const struct itimerval again = { { 1, 0 }, { 1, 0 } }, never = { { 0, 0 }, { 0, 0 } };
	void *nothing;

	open_device();
	CHECK((channel = ibv_create_comp_channel(context)));
	make(&a, access_of_a, 64, 8, channel);
	make(&b, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, 64, 8, NULL);
	connect_both();
	CHECK(post(&a, 7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	CHECK(post(&a, 8, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	wait_for(&a);
	/* The second one has come too by now: requests between queue pairs of one process are carried out when they are posted, once the
	 * first has made contact. */
	CHECK(ibv_req_notify_cq(a.cq, 0) == 0);
	if (right)
		wait_for(&a);
	else {
		/* Nothing wakes it but this: again and again, as what is told first may take longer than once. */
		CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &again, NULL) == 0);
		CHECK(ibv_get_cq_event(channel, &cq, &nothing) == -1 && errno == EINTR);
		CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
		wait_for(&a);
	}
	end();
}

static void starved(void)
{
	int count, done = 0;

	begin();
	for (count = 0; count < 12; count++) {
		unsigned flags = right && count % 4 == 3 ? IBV_SEND_SIGNALED : 0;

		if (right && count >= 8 && done < 2) {
			wait_for(&a);
			done++;
		}
		if (post(&a, count, IBV_WR_RDMA_WRITE, flags, 64, place()) != 0)
			break;
	}
	if (right)
		wait_for(&a);
	CHECK(count == (right ? 12 : 8));
	if (!right)
		exit(0);
	end();
}

static void undrained_destroy(void)
{
	begin();
	CHECK(post(&a, 3, IBV_WR_RDMA_WRITE, right ? IBV_SEND_SIGNALED : 0, 64, place()) == 0);
	if (right)
		wait_for(&a);
	end();
}

static void deregistered_in_use(void)
{
	begin();
	CHECK(post_recv(&a, 3, 0) == 0);
	if (right) {
		CHECK(ibv_destroy_qp(a.qp) == 0);
		a.qp = NULL;
	}
	CHECK(ibv_dereg_mr(a.mr) == 0);
	a.mr = NULL;
	end();
}

static void use_after_destroy(void)
{
	struct ibv_qp *qp;

	begin();
	qp = a.qp;
	if (!right) {
		CHECK(ibv_destroy_qp(a.qp) == 0);
		CHECK(post(&a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == EINVAL);
		CHECK(ibv_destroy_qp(qp) == EINVAL);
		a.qp = NULL;
	}
	end();
}

static void destroy_race(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_qp *qp;

	begin();
	init.send_cq = init.recv_cq = a.cq;
	init.pd = pd;
	CHECK((qp = ibv_create_qp_ex(context, &init)));
	ibv_wr_start(ibv_qp_to_qp_ex(qp));
	if (right)
		ibv_wr_abort(ibv_qp_to_qp_ex(qp));
	CHECK(ibv_destroy_qp(qp) == 0);
	end();
}

/* Ends by a signal, which no exit code replaces. */
static void killed(void)
{
	begin();
	CHECK(post(&a, 7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	a.memory[3]++;
	wait_for(&a);
	raise(SIGTERM);
}

static void mtu(void)
{
	other_mtu = right ? IBV_MTU_1024 : IBV_MTU_4096;
	begin();
	end();
}

static void psn(void)
{
	other_psn = right ? 7 : 8;
	begin();
	end();
}

static void cq_depth(void)
{
	int count;

	make_both(right ? 8 : 4, NULL);
	connect_both();
	for (count = 0; count < 6; count++)
		CHECK(post_recv(&a, count, 64 * count) == 0);
	end();
}

static void wrong_state(void)
{
	make_both(64, NULL);
	if (right)
		connect_both();
	CHECK(post(&a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == (right ? 0 : EINVAL));
	if (right)
		wait_for(&a);
	end();
}

/* The same queue pair, by which `ibv_wr_*` post WRITEs. */
static struct ibv_qp_ex *begin_extended(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};

	make_both(64, NULL);
	CHECK(ibv_destroy_qp(a.qp) == 0);
	init.send_cq = init.recv_cq = a.cq;
	init.pd = pd;
	CHECK((a.qp = ibv_create_qp_ex(context, &init)));
	connect_both();
	return ibv_qp_to_qp_ex(a.qp);
}

static void write_extended(struct ibv_qp_ex *qp, uint64_t id, unsigned flags)
{
	qp->wr_id = id;
	qp->wr_flags = flags;
	ibv_wr_rdma_write(qp, b.mr->rkey, place());
}

static void refused_extended(void)
{
	struct ibv_qp_ex *qp = begin_extended();
	int count;

	ibv_wr_start(qp);
	for (count = 0; count < 3; count++) {
		write_extended(qp, count, IBV_SEND_SIGNALED);
		/* More than fits inline. */
		ibv_wr_set_inline_data(qp, a.memory, count == 1 && !right ? LEN : 8);
	}
	CHECK(ibv_wr_complete(qp) == (right ? 0 : EINVAL));
	for (count = 0; count < 3 && right; count++)
		wait_for(&a);
	end();
}

static void starved_extended(void)
{
	struct ibv_qp_ex *qp = begin_extended();
	int count, failed = 0;

	for (count = 0; count < 16 && !failed; count += 2) {
		ibv_wr_start(qp);
		for (int at = 0; at < 2; at++) {
			write_extended(qp, count + at, right && at ? IBV_SEND_SIGNALED : 0);
			ibv_wr_set_sge(qp, a.mr->lkey, (uintptr_t) a.memory, 64);
		}
		failed = ibv_wr_complete(qp);
		if (right)
			wait_for(&a);
	}
	CHECK(failed == (right ? 0 : ENOMEM));
	if (!right)
		exit(0);
	end();
}

static void ignored_bad_wr(void)
{
	struct ibv_send_wr *bad, wrs[3];
	struct ibv_sge sge;
	int count;

	begin();
	sge = (struct ibv_sge) { (uintptr_t) a.memory, 100, a.mr->lkey };
	memset(wrs, 0, sizeof wrs);
	for (count = 0; count < 3; count++) {
		wrs[count].wr_id = count;
		wrs[count].next = count < 2 ? &wrs[count + 1] : NULL;
		wrs[count].sg_list = &sge;
		wrs[count].num_sge = 1;
		wrs[count].opcode = IBV_WR_RDMA_WRITE;
		wrs[count].send_flags = IBV_SEND_SIGNALED;
		wrs[count].wr.rdma.remote_addr = place();
		wrs[count].wr.rdma.rkey = b.mr->rkey;
	}
	/* More than fits inline. */
	if (!right)
		wrs[1].send_flags |= IBV_SEND_INLINE;
	CHECK(ibv_post_send(a.qp, wrs, &bad) == (right ? 0 : EINVAL));
	for (count = 0; count < (right ? 3 : 1); count++)
		wait_for(&a);
	end();
}

static void post_after_error(void)
{
	begin();
	CHECK(post(&a, 9, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, right ? 64 : 2 * LEN + 8, place()) == 0);
	wait_for(&a);
	if (!right) {
		CHECK(post(&a, 10, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
		CHECK(wait_for(&a).status == IBV_WC_WR_FLUSH_ERR);
	}
	end();
}

static void forked(void)
{
	int status;
	pid_t child;

	begin();
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct ibv_wc wc;

		if (right)
			exit(0);
		ibv_poll_cq(a.cq, 1, &wc);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	end();
	exit(WEXITSTATUS(status));
}

static void left_behind(void)
{
	begin();
	if (right)
		end();
}

static void busy(void)
{
	begin();
	if (!right)
		CHECK(ibv_destroy_cq(a.cq) == EBUSY);
	end();
}

/* The same memory has another key, which peers may write with. */
/* The queue of `a` by its extended interface, as which all of ours may be used. */
static struct ibv_cq_ex *make_extended(void)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_qp_init_attr pair = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 },
	};
	struct ibv_cq_ex *cq;

	make_both(64, NULL);
	CHECK(ibv_destroy_qp(a.qp) == 0 && ibv_destroy_cq(a.cq) == 0);
	CHECK((cq = ibv_create_cq_ex(context, &init)));
	a.cq = ibv_cq_ex_to_cq(cq);
	pair.send_cq = pair.recv_cq = a.cq;
	CHECK((a.qp = ibv_create_qp(pd, &pair)));
	connect_both();
	/* From now on requests are carried out when they are posted. */
	CHECK(post(&a, 5, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	CHECK(wait_for(&a).status == IBV_WC_SUCCESS);
	return cq;
}

/* Two completions are there, of which the program has seen the first when it changes the bytes of the second. */
static void changed_extended(void)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_cq_ex *cq = make_extended();

	CHECK(post(&a, 6, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	CHECK(post(&a, 7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	CHECK(ibv_start_poll(cq, &attr) == 0 && cq->status == IBV_WC_SUCCESS && cq->wr_id == 6);
	if (!right)
		a.memory[3]++;
	CHECK(ibv_next_poll(cq) == 0 && cq->status == IBV_WC_SUCCESS && cq->wr_id == 7);
	ibv_end_poll(cq);
	end();
}

/* The same with an error as the second, which nobody has seen when the next is posted. */
static void error_extended(void)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_cq_ex *cq = make_extended();

	CHECK(post(&a, 6, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	CHECK(post(&a, 9, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 2 * LEN + 8, place()) == 0);
	CHECK(ibv_start_poll(cq, &attr) == 0 && cq->status == IBV_WC_SUCCESS);
	if (right)
		CHECK(post(&a, 10, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	CHECK(ibv_next_poll(cq) == 0 && cq->status != IBV_WC_SUCCESS);
	ibv_end_poll(cq);
	if (!right)
		CHECK(post(&a, 10, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	CHECK(wait_for(&a).status == IBV_WC_WR_FLUSH_ERR);
	end();
}

/* Woken, and gone without a look. */
static void undrained_event(void)
{
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	void *own;

	open_device();
	CHECK((channel = ibv_create_comp_channel(context)));
	make(&a, access_of_a, 64, 8, channel);
	make(&b, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, 64, 8, NULL);
	connect_both();
	CHECK(ibv_req_notify_cq(a.cq, 0) == 0);
	CHECK(post(&a, 7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	CHECK(ibv_get_cq_event(channel, &cq, &own) == 0);
	ibv_ack_cq_events(cq, 1);
	if (right)
		CHECK(wait_for(&a).status == IBV_WC_SUCCESS);
	CHECK(ibv_destroy_qp(a.qp) == 0);
	a.qp = NULL;
	end();
}

static void changed_by_another_key(void)
{
	struct ibv_mr *other;

	begin();
	CHECK((other = ibv_reg_mr(pd, a.memory, 2 * LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
	CHECK(post(&a, 7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	if (!right)
		a.memory[3]++;
	CHECK(wait_for(&a).status == IBV_WC_SUCCESS);
	CHECK(ibv_dereg_mr(other) == 0);
	end();
}

static void resized(void)
{
	size_t len = 200000;
	char *memory;
	struct ibv_mr *mr;

	begin();
	heap();
	CHECK((memory = malloc(len)));
	CHECK((mr = ibv_reg_mr(pd, memory, len, IBV_ACCESS_LOCAL_WRITE)));
	if (right)
		CHECK(ibv_dereg_mr(mr) == 0);
	/* So much longer that it moves. */
	CHECK((memory = realloc(memory, 20 * len)));
	if (!right)
		CHECK(ibv_dereg_mr(mr) == 0);
	free(memory);
	end();
}

static void connected_anew(void)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };

	begin();
	if (right)
		return end();
	/* Nobody has a region there. */
	CHECK(post(&a, 7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, 8) == 0);
	CHECK(wait_for(&a).status == IBV_WC_REM_ACCESS_ERR);
	CHECK(ibv_modify_qp(a.qp, &reset, IBV_QP_STATE) == 0);
	to_init(&a);
	to_rts(&a, &b, IBV_MTU_1024, 105, 107);
	CHECK(ibv_modify_qp(b.qp, &reset, IBV_QP_STATE) == 0);
	to_init(&b);
	to_rts(&b, &a, IBV_MTU_1024, 107, 105);
	end();
}

/* A RECV at the end of all addresses, which no message asks for. */
static void nowhere(void)
{
	struct ibv_sge sge;
	struct ibv_recv_wr *bad, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };

	begin();
	CHECK(post_recv(&a, 1, 0) == 0);
	sge = (struct ibv_sge) { -1, 64, a.mr->lkey };
	CHECK(ibv_post_recv(a.qp, &wr, &bad) == 0);
	end();
}

/* Two regions call their first bytes by the same address. */
static void same_iova(void)
{
	struct ibv_mr *mrs[2];
	struct ibv_sge sge = { LEN, 64, 0 };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };
	int count;

	begin();
	for (count = 0; count < 2; count++) {
		CHECK((mrs[count] = ibv_reg_mr_iova(pd, a.memory + count * LEN, LEN, LEN, IBV_ACCESS_LOCAL_WRITE)));
		sge.lkey = mrs[count]->lkey;
		CHECK(ibv_post_recv(a.qp, &wr, &bad) == 0);
	}
	CHECK(ibv_destroy_qp(a.qp) == 0);
	a.qp = NULL;
	for (count = 0; count < 2; count++)
		CHECK(ibv_dereg_mr(mrs[count]) == 0);
	end();
}

static void freed_by_child(void)
{
	size_t len = 100000;
	char *memory;
	struct ibv_mr *mr;
	int status;
	pid_t child;

	begin();
	CHECK((memory = malloc(len)));
	CHECK((mr = ibv_reg_mr(pd, memory, len, IBV_ACCESS_LOCAL_WRITE)));
	CHECK((child = fork()) >= 0);
	if (child == 0) {
		free(memory);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	CHECK(ibv_dereg_mr(mr) == 0);
	free(memory);
	end();
}

static void post_and_end(void)
{
	CHECK(post(&a, 7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
	CHECK(wait_for(&a).status == IBV_WC_SUCCESS);
	end();
}

static void fork_once(void)
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0)
		_exit(0);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
}

/* When this thread's variables are gone already. */
static void at_exit(void)
{
	begin();
	CHECK(atexit(post_and_end) == 0);
	CHECK(atexit(fork_once) == 0);
	CHECK(atexit(fork_once) == 0);
}

static void exit_at_once(int signal)
{
	(void) signal;
	exit(0);
}

/* In the middle of a call, most likely. */
static void on_signal(void)
{
	begin();
	CHECK(signal(SIGALRM, exit_at_once) != SIG_ERR);
	ualarm(3000, 0);
	for (;;) {
		CHECK(post(&a, 7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, 64, place()) == 0);
		wait_for(&a);
	}
}

/* In the middle of malloc, which has its lock: a block is split in a page that cannot be written. */
static void in_malloc(void)
{
	size_t len = 64 << 10;
	char *block, *behind;
	/* Told before the block is given back. */
	volatile uintptr_t page;

	changed_bytes();
	CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 25) == 1);
	CHECK((block = malloc(len)) && (behind = malloc(len)));
	page = ((uintptr_t) block + 2 * LEN) / LEN * LEN;
	free(block);
	CHECK(signal(SIGSEGV, exit_at_once) != SIG_ERR);
	CHECK(mprotect((void *) page, len - 4 * LEN, PROT_NONE) == 0);
	/* Blocks that fit better go first. */
	for (int count = 0; count < 1000; count++)
		CHECK(malloc(len / 2));
	_exit(1);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*make)(void); } mistakes[] = {
		{ "changed-buffer", changed_buffer }, { "changed-by-somebody", changed_by_somebody },
		{ "failed-local", failed_local }, { "failed-remote", failed_remote }, { "no-recv", no_recv },
		{ "overlapping-recvs", overlapping_recvs }, { "send-from-recv", send_from_recv },
		{ "unmapped", unmapped }, { "freed", freed }, { "unmapped-in-use", unmapped_in_use },
		{ "undrained-sleep", undrained_sleep }, { "starved", starved },
		{ "undrained-destroy", undrained_destroy }, { "deregistered-in-use", deregistered_in_use },
		{ "use-after-destroy", use_after_destroy }, { "mtu", mtu }, { "psn", psn }, { "cq-depth", cq_depth },
		{ "wrong-state", wrong_state }, { "ignored-bad-wr", ignored_bad_wr },
		{ "refused-extended", refused_extended }, { "starved-extended", starved_extended },
		{ "post-after-error", post_after_error }, { "forked", forked }, { "left-behind", left_behind },
		{ "busy", busy }, { "failed-deregistered", failed_deregistered }, { "unmapped-unseen", unmapped_unseen },
		{ "destroy-race", destroy_race }, { "killed", killed },
		{ "changed-by-another-key", changed_by_another_key }, { "resized", resized },
		{ "connected-anew", connected_anew }, { "nowhere", nowhere }, { "same-iova", same_iova },
		{ "freed-by-child", freed_by_child }, { "at-exit", at_exit }, { "on-signal", on_signal },
		{ "in-malloc", in_malloc }, { "changed-extended", changed_extended }, { "error-extended", error_extended },
		{ "undrained-event", undrained_event },
	};
	size_t at;

	CHECK(argc > 1);
	right = argc > 2;
	for (at = 0; at < sizeof mistakes / sizeof *mistakes; at++)
		if (strcmp(argv[1], mistakes[at].name) == 0) {
			mistakes[at].make();
			puts("done");
			return 0;
		}
	return 2;
}
