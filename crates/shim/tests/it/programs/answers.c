/* What a device answers: right and wrong calls of libibverbs, a line each, so that two devices can be compared.
 *
 * What devices may choose (keys, handles, how much more than was asked for) is left out. */
#define _GNU_SOURCE
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

static void regions(void)
{
	struct {
		const char *what;
		void *at;
		size_t length;
		int access;
	} tries[] = {
	    {"nothing", memory, 0, 0},
	    {"null", NULL, PAGE, 0},
	    {"unmapped", (void *)0x10000, PAGE, IBV_ACCESS_LOCAL_WRITE},
	    {"read alone", memory, PAGE, 0},
	    {"remote read alone", memory, PAGE, IBV_ACCESS_REMOTE_READ},
	    {"remote write without local", memory, PAGE, IBV_ACCESS_REMOTE_WRITE},
	    {"remote atomic without local", memory, PAGE, IBV_ACCESS_REMOTE_ATOMIC},
	    {"windows without local", memory, PAGE, IBV_ACCESS_MW_BIND},
	    {"an unknown right", memory, PAGE, 1 << 19},
	    {"an optional unknown right", memory, PAGE, 1 << 28 | IBV_ACCESS_LOCAL_WRITE},
	    {"relaxed ordering", memory, PAGE, IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_LOCAL_WRITE},
	    {"odd address and length", memory + 3, 77, ALL},
	    {"too long", memory, (size_t)1 << 47, IBV_ACCESS_LOCAL_WRITE},
	};
	for (size_t i = 0; i < COUNT(tries); i++) {
		char what[100];
		snprintf(what, sizeof what, "ibv_reg_mr, %s", tries[i].what);
		MADE(what, ibv_reg_mr(pd, tries[i].at, tries[i].length, tries[i].access), ibv_dereg_mr);
	}
	void *read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MADE("ibv_reg_mr, read-only memory to read", ibv_reg_mr(pd, read_only, PAGE, IBV_ACCESS_REMOTE_READ),
	     ibv_dereg_mr);
	MADE("ibv_reg_mr, read-only memory to write", ibv_reg_mr(pd, read_only, PAGE, IBV_ACCESS_LOCAL_WRITE),
	     ibv_dereg_mr);
	MADE("ibv_reg_mr_iova, another place in a page", ibv_reg_mr_iova(pd, memory, PAGE, 0x77000123, ALL),
	     ibv_dereg_mr);
	MADE("ibv_reg_mr_iova, zero", ibv_reg_mr_iova(pd, memory, PAGE, 0, ALL), ibv_dereg_mr);
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_mr *held = ibv_reg_mr(other, memory, PAGE, 0);
	CODE("ibv_dealloc_pd with a region", ibv_dealloc_pd(other));
	ibv_dereg_mr(held);
	CODE("ibv_dealloc_pd", ibv_dealloc_pd(other));
}

static void queues(void)
{
	struct {
		const char *what;
		int cqe, vector;
	} tries[] = {{"no entries", 0, 0},
		     {"negative", -1, 0},
		     {"too many", device.max_cqe + 1, 0},
		     {"as many as there are", device.max_cqe, 0},
		     {"a vector too high", 16, context->num_comp_vectors},
		     {"a negative vector", 16, -1}};
	for (size_t i = 0; i < COUNT(tries); i++) {
		char what[100];
		snprintf(what, sizeof what, "ibv_create_cq, %s", tries[i].what);
		MADE(what, ibv_create_cq(context, tries[i].cqe, NULL, NULL, tries[i].vector), ibv_destroy_cq);
	}
	struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, NULL, 0);
	printf("ibv_create_cq, 10: at least as many: %d\n", cq->cqe >= 10);
	struct ibv_wc wc;
	printf("ibv_poll_cq, nothing there: %d\n", ibv_poll_cq(cq, 1, &wc));
	printf("ibv_poll_cq, room for none: %d\n", ibv_poll_cq(cq, 0, &wc));
	CODE("ibv_resize_cq, 100", ibv_resize_cq(cq, 100));
	CODE("ibv_resize_cq, too many", ibv_resize_cq(cq, device.max_cqe + 1));
	CODE("ibv_resize_cq, none", ibv_resize_cq(cq, 0));
	struct shape rc = {IBV_QPT_RC, 4, 4, 1, 0, NULL, 0};
	struct ibv_qp *qp = make_qp(cq, &rc);
	CODE("ibv_destroy_cq with a queue pair", ibv_destroy_cq(cq));
	struct ibv_pd *used = pd;
	CODE("ibv_dealloc_pd with queue pairs", ibv_dealloc_pd(used));
	ibv_destroy_qp(qp);
	struct {
		const char *what;
		struct shape shape;
	} shapes[] = {
	    {"no room to send or receive", {IBV_QPT_RC, 0, 0, 0, 0, NULL, 0}},
	    {"too many requests", {IBV_QPT_RC, device.max_qp_wr + 1, 1, 1, 0, NULL, 0}},
	    {"too many RECVs", {IBV_QPT_RC, 1, device.max_qp_wr + 1, 1, 0, NULL, 0}},
	    {"too many elements", {IBV_QPT_RC, 1, 1, device.max_sge + 1, 0, NULL, 0}},
	    {"as many as there are", {IBV_QPT_RC, device.max_qp_wr, device.max_qp_wr, 1, 0, NULL, 0}},
	    {"too much inline", {IBV_QPT_RC, 1, 1, 1, 1 << 20, NULL, 0}},
	    {"RC", {IBV_QPT_RC, 1, 1, 1, 0, NULL, 0}},
	    {"UC", {IBV_QPT_UC, 1, 1, 1, 0, NULL, 0}},
	    {"UD", {IBV_QPT_UD, 1, 1, 1, 0, NULL, 0}},
	    {"raw packets", {IBV_QPT_RAW_PACKET, 1, 1, 1, 0, NULL, 0}},
	    {"XRC send", {IBV_QPT_XRC_SEND, 1, 1, 1, 0, NULL, 0}},
	    {"driver's", {IBV_QPT_DRIVER, 1, 1, 1, 0, NULL, 0}},
	    {"no such type", {77, 1, 1, 1, 0, NULL, 0}},
	};
	for (size_t i = 0; i < COUNT(shapes); i++) {
		char what[100];
		snprintf(what, sizeof what, "ibv_create_qp, %s", shapes[i].what);
		MADE(what, make_qp(cq, &shapes[i].shape), ibv_destroy_qp);
	}
	ibv_destroy_cq(cq);
}

/* A queue pair of its own that has come as far as this. */
static struct ibv_qp *come_to(struct ibv_cq *cq, enum ibv_qp_type type, enum ibv_qp_state state)
{
	struct shape shape = {type, 8, 8, 1, 0, NULL, 0};
	struct ibv_qp *qp = make_qp(cq, &shape);
	must(qp != NULL, "a queue pair");
	int mask;
	struct ibv_qp_attr attr = to_init(type, &mask);
	if (state >= IBV_QPS_INIT)
		must(step(qp, attr, mask) == 0, "INIT");
	attr = to_rtr(type, qp->qp_num, &mask);
	if (state >= IBV_QPS_RTR)
		must(step(qp, attr, mask) == 0, "RTR");
	attr = to_rts(type, &mask);
	if (state >= IBV_QPS_RTS)
		must(step(qp, attr, mask) == 0, "RTS");
	return qp;
}

struct change {
	const char *name;
	enum ibv_qp_type type;
	enum ibv_qp_state from;
	const char *to;
	struct ibv_cq *cq;
};

/* What a change of a queue pair that is in `from` is answered. */
static void change(const struct change *of, const char *how, struct ibv_qp_attr attr, int mask)
{
	static const char *const states[] = {"RESET", "INIT", "RTR", "RTS"};
	char what[200];
	struct ibv_qp *qp = come_to(of->cq, of->type, of->from);
	snprintf(what, sizeof what, "%s: %s to %s%s", of->name, states[of->from], of->to, how);
	CODE(what, step(qp, attr, mask));
	ibv_destroy_qp(qp);
}

static void without_each(const struct change *of, struct ibv_qp_attr attr, int mask)
{
	for (int bit = 1; bit < 26; bit++) {
		if (!(mask & 1 << bit))
			continue;
		char how[80];
		snprintf(how, sizeof how, " without attribute %x", 1 << bit);
		change(of, how, attr, mask & ~(1 << bit));
	}
	change(of, "", attr, mask);
}

static void changes(enum ibv_qp_type type, const char *name)
{
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct change of = {name, type, IBV_QPS_RESET, "INIT", cq};
	int mask, is_connected = type != IBV_QPT_UD;
	struct ibv_qp_attr right = to_init(type, &mask), attr;
	without_each(&of, right, mask);
	attr = right;
	attr.port_num = 2;
	change(&of, " with port 2", attr, mask);
	attr = right;
	attr.port_num = 0;
	change(&of, " with port 0", attr, mask);
	attr = right;
	attr.pkey_index = 999;
	change(&of, " with a P_Key index too high", attr, mask);
	change(&of, " with an attribute too many", right, mask | IBV_QP_SQ_PSN);
	of.from = IBV_QPS_INIT;
	change(&of, "", right, mask);
	attr = right;
	attr.qp_state = 77;
	of.to = "no such state";
	change(&of, "", attr, IBV_QP_STATE);
	right = to_rtr(type, 1, &mask);
	of.to = "RTR";
	of.from = IBV_QPS_RESET;
	change(&of, "", right, mask);
	of.from = IBV_QPS_INIT;
	without_each(&of, right, mask);
	if (is_connected) {
		attr = right;
		attr.path_mtu = 0;
		change(&of, " with MTU 0", attr, mask);
		attr = right;
		attr.path_mtu = 9;
		change(&of, " with MTU 9", attr, mask);
		attr = right;
		attr.ah_attr.port_num = 2;
		change(&of, " with the address's port 2", attr, mask);
		attr = right;
		attr.ah_attr.is_global = 0;
		change(&of, " without a GRH", attr, mask);
		attr = right;
		attr.ah_attr.grh.sgid_index = 200;
		change(&of, " with a GID index too high", attr, mask);
		attr = right;
		attr.dest_qp_num = 1 << 24;
		change(&of, " with a peer of 25 bits", attr, mask);
	}
	if (type == IBV_QPT_RC) {
		attr = right;
		attr.max_dest_rd_atomic = 255;
		change(&of, " with 255 READs to answer", attr, mask);
		attr = right;
		attr.min_rnr_timer = 40;
		change(&of, " with an RNR timer of 40", attr, mask);
	}
	right = to_rts(type, &mask);
	of.to = "RTS";
	of.from = IBV_QPS_RESET;
	change(&of, "", right, mask);
	of.from = IBV_QPS_INIT;
	change(&of, "", right, mask);
	of.from = IBV_QPS_RTR;
	without_each(&of, right, mask);
	attr = right;
	attr.cur_qp_state = IBV_QPS_INIT;
	change(&of, " from a state that it is not in", attr, mask | IBV_QP_CUR_STATE);
	if (type == IBV_QPT_RC) {
		attr = right;
		attr.retry_cnt = 8;
		change(&of, " with 8 retries", attr, mask);
		attr = right;
		attr.rnr_retry = 8;
		change(&of, " with 8 RNR retries", attr, mask);
		attr = right;
		attr.timeout = 32;
		change(&of, " with a time-out of 32", attr, mask);
		attr = right;
		attr.max_rd_atomic = 255;
		change(&of, " with 255 READs to ask", attr, mask);
	}
	of.from = IBV_QPS_RTS;
	change(&of, "", right, IBV_QP_STATE);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_SQD};
	of.to = "SQD";
	change(&of, "", attr, IBV_QP_STATE);
	attr.qp_state = IBV_QPS_RESET;
	of.to = "RESET";
	change(&of, "", attr, IBV_QP_STATE);
	ibv_destroy_cq(cq);
}

/* What can be posted in which state, and what becomes of it. */
static void states(enum ibv_qp_type type, const char *name)
{
	char what[200];
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_qp *qp = come_to(cq, type, IBV_QPS_RESET);
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr wr = request(IBV_WR_SEND, 1, &sge, 1);
	struct ibv_ah_attr ah_attr = address();
	struct ibv_ah *ah = ibv_create_ah(pd, &ah_attr);
	if (type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qp->qp_num;
		wr.wr.ud.remote_qkey = 0x11111111;
	}
#define TRY(text, expression)                                                                                          \
	do {                                                                                                           \
		snprintf(what, sizeof what, "%s: %s", name, text);                                                     \
		CODE(what, expression);                                                                                \
	} while (0)
	TRY("post_send in RESET", post(qp, &wr));
	TRY("post_recv in RESET", recv_(qp, 1, 0, 8));
	int mask;
	struct ibv_qp_attr attr = to_init(type, &mask);
	TRY("INIT", step(qp, attr, mask));
	printf("%s: state in the structure: %d\n", name, qp->state);
	TRY("post_send in INIT", post(qp, &wr));
	TRY("post_recv in INIT", recv_(qp, 2, 0, 64));
	attr = to_rtr(type, qp->qp_num, &mask);
	TRY("RTR", step(qp, attr, mask));
	TRY("post_send in RTR", post(qp, &wr));
	TRY("post_recv in RTR", recv_(qp, 3, 0, 64));
	attr = to_rts(type, &mask);
	TRY("RTS", step(qp, attr, mask));
	struct ibv_qp_init_attr asked;
	memset(&attr, 0, sizeof attr);
	TRY("ibv_query_qp", ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &asked));
	printf("%s: asked: state %d, port %d, type %d, all signalled %d\n", name, attr.qp_state, attr.port_num,
	       asked.qp_type, asked.sq_sig_all);
	if (type != IBV_QPT_UD)
		printf("%s: asked: mtu %d, peer %d, rq_psn %u, sq_psn %u, rights %x, hop limit %d\n", name,
		       attr.path_mtu, attr.dest_qp_num == qp->qp_num, attr.rq_psn, attr.sq_psn, attr.qp_access_flags,
		       attr.ah_attr.grh.hop_limit);
	if (type == IBV_QPT_RC)
		printf("%s: asked: timeout %d, retries %d, rnr %d, timer %d, reads %d %d\n", name, attr.timeout,
		       attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer, attr.max_rd_atomic, attr.max_dest_rd_atomic);
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_ERR};
	TRY("ERR", step(qp, attr, IBV_QP_STATE));
	snprintf(what, sizeof what, "%s: first RECV in ERR", name);
	completion(what, cq);
	snprintf(what, sizeof what, "%s: second RECV in ERR", name);
	completion(what, cq);
	TRY("post_send in ERR", post(qp, &wr));
	snprintf(what, sizeof what, "%s: a SEND in ERR", name);
	completion(what, cq);
	TRY("post_recv in ERR", recv_(qp, 4, 0, 8));
	snprintf(what, sizeof what, "%s: a RECV in ERR", name);
	completion(what, cq);
	attr = to_init(type, &mask);
	TRY("ERR to INIT", step(qp, attr, mask));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET};
	TRY("ERR to RESET", step(qp, attr, IBV_QP_STATE));
	TRY("RESET to RESET", step(qp, attr, IBV_QP_STATE));
	attr = to_init(type, &mask);
	TRY("RESET to INIT again", step(qp, attr, mask));
	ibv_destroy_qp(qp);
	ibv_destroy_ah(ah);
	ibv_destroy_cq(cq);
}

static const struct shape RC = {IBV_QPT_RC, 8, 8, 2, 64, NULL, 0};

static void flushed(const char *what, struct pair *pair, int side)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	ibv_query_qp(pair->qp[side], &attr, IBV_QP_STATE, &init);
	printf("%s: state after it: %d\n", what, attr.qp_state);
}

/* A request of which the first side hears an error, and what becomes of both. */
static void wrong_at(int reaches_peer, const char *what, struct ibv_send_wr wr, int recv_length)
{
	char text[200];
	struct pair pair = connected(RC);
	if (recv_length >= 0)
		recv_(pair.qp[1], 7, 4096, recv_length);
	snprintf(text, sizeof text, "%s: posted", what);
	CODE(text, post(pair.qp[0], &wr));
	struct ibv_sge sge = piece(0, 8);
	struct ibv_send_wr behind = request(IBV_WR_RDMA_WRITE, 2, &sge, 1);
	behind.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	behind.wr.rdma.rkey = mr->rkey;
	post(pair.qp[0], &behind);
	snprintf(text, sizeof text, "%s: it", what);
	completion(text, pair.cq[0]);
	snprintf(text, sizeof text, "%s: what is behind", what);
	completion(text, pair.cq[0]);
	snprintf(text, sizeof text, "%s: the RECV", what);
	if (recv_length >= 0 && reaches_peer)
		completion(text, pair.cq[1]);
	if (!reaches_peer)
		no_completion(text, pair.cq[1]);
	flushed(what, &pair, 0);
	snprintf(text, sizeof text, "%s, peer", what);
	flushed(text, &pair, 1);
	destroy(&pair);
}

static void wrong(const char *what, struct ibv_send_wr wr, int recv_length)
{
	wrong_at(1, what, wr, recv_length);
}

/* One that the sender's own device refuses. */
static void wrong_here(const char *what, struct ibv_send_wr wr)
{
	wrong_at(0, what, wr, 200);
}

static void requests(void)
{
	struct pair pair = connected(RC);
	struct ibv_sge sge = piece(0, 100), none = piece(0, 0), two[3] = {piece(0, 50), piece(200, 60), piece(300, 4)};
	strcpy(memory, "some bytes");
	recv_(pair.qp[1], 10, 4096, 200);
	struct ibv_send_wr wr = request(IBV_WR_SEND, 1, &sge, 1);
	CODE("RC SEND", post(pair.qp[0], &wr));
	completion("RC SEND", pair.cq[0]);
	completion("RC SEND, peer", pair.cq[1]);
	recv_(pair.qp[1], 11, 4096, 200);
	wr = request(IBV_WR_SEND_WITH_IMM, 2, two, 2);
	wr.imm_data = htonl(0xabcdef01);
	CODE("RC SEND with immediate data", post(pair.qp[0], &wr));
	completion("RC SEND with immediate data", pair.cq[0]);
	completion("RC SEND with immediate data, peer", pair.cq[1]);
	wr = request(IBV_WR_RDMA_WRITE, 3, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.rdma.rkey = mr->rkey;
	CODE("RC WRITE", post(pair.qp[0], &wr));
	completion("RC WRITE", pair.cq[0]);
	no_completion("RC WRITE, peer", pair.cq[1]);
	recv_(pair.qp[1], 12, 4096, 200);
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr.wr_id = 4;
	wr.imm_data = htonl(5);
	CODE("RC WRITE with immediate data", post(pair.qp[0], &wr));
	completion("RC WRITE with immediate data", pair.cq[0]);
	completion("RC WRITE with immediate data, peer", pair.cq[1]);
	recv_(pair.qp[1], 13, 4096, 0);
	wr.wr_id = 5;
	wr.num_sge = 0;
	CODE("RC WRITE of nothing with immediate data", post(pair.qp[0], &wr));
	completion("RC WRITE of nothing with immediate data", pair.cq[0]);
	completion("RC WRITE of nothing with immediate data, peer", pair.cq[1]);
	wr = request(IBV_WR_RDMA_READ, 6, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.rdma.rkey = mr->rkey;
	CODE("RC READ", post(pair.qp[0], &wr));
	completion("RC READ", pair.cq[0]);
	wr.num_sge = 0;
	wr.wr_id = 7;
	CODE("RC READ of nothing", post(pair.qp[0], &wr));
	completion("RC READ of nothing", pair.cq[0]);
	struct ibv_sge word = piece(64, 8);
	*(uint64_t *)(memory + 8192) = 5;
	wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, &word, 1);
	wr.wr.atomic.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.atomic.rkey = mr->rkey;
	wr.wr.atomic.compare_add = 3;
	CODE("RC fetch and add", post(pair.qp[0], &wr));
	completion("RC fetch and add", pair.cq[0]);
	printf("RC fetch and add: %lu, before %lu\n", *(uint64_t *)(memory + 8192), *(uint64_t *)(memory + 64));
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr_id = 9;
	wr.wr.atomic.compare_add = 8;
	wr.wr.atomic.swap = 77;
	CODE("RC compare and swap", post(pair.qp[0], &wr));
	completion("RC compare and swap", pair.cq[0]);
	printf("RC compare and swap: %lu, before %lu\n", *(uint64_t *)(memory + 8192), *(uint64_t *)(memory + 64));
	recv_(pair.qp[1], 14, 4096, 200);
	wr = request(IBV_WR_SEND, 20, &none, 1);
	CODE("RC SEND of an element without bytes", post(pair.qp[0], &wr));
	completion("RC SEND of an element without bytes", pair.cq[0]);
	completion("RC SEND of an element without bytes, peer", pair.cq[1]);
	recv_(pair.qp[1], 15, 4096, 200);
	char here[32] = "on the stack";
	struct ibv_sge stack = {(uint64_t)here, 32, 0};
	wr = request(IBV_WR_SEND, 21, &stack, 1);
	wr.send_flags |= IBV_SEND_INLINE;
	CODE("RC inline SEND", post(pair.qp[0], &wr));
	completion("RC inline SEND", pair.cq[0]);
	completion("RC inline SEND, peer", pair.cq[1]);
	printf("RC inline SEND: %s\n", memory + 4096);
	struct ibv_sge much = piece(0, 1 << 16);
	wr = request(IBV_WR_SEND, 22, &much, 1);
	wr.send_flags |= IBV_SEND_INLINE;
	CODE("RC inline SEND, too long", post(pair.qp[0], &wr));
	wr = request(IBV_WR_SEND, 23, two, 3);
	CODE("RC SEND, too many elements", post(pair.qp[0], &wr));
	wr = request(77, 24, &sge, 1);
	CODE("RC, no such operation", post(pair.qp[0], &wr));
	struct ibv_send_wr list[3], *bad = NULL;
	for (int i = 0; i < 3; i++) {
		list[i] = request(IBV_WR_SEND, 30 + i, &sge, i == 1 ? 9 : 1);
		list[i].next = i < 2 ? &list[i + 1] : NULL;
	}
	recv_(pair.qp[1], 16, 4096, 200);
	CODE("RC list with a bad one", ibv_post_send(pair.qp[0], list, &bad));
	printf("RC list with a bad one: number %ld\n", (long)(bad - list));
	completion("RC list with a bad one, the first", pair.cq[0]);
	no_completion("RC list with a bad one, the others", pair.cq[0]);
	struct ibv_recv_wr recv_wr = {.wr_id = 1, .sg_list = two, .num_sge = 3}, *bad_recv;
	CODE("ibv_post_recv, too many elements", ibv_post_recv(pair.qp[0], &recv_wr, &bad_recv));
	int count = 0;
	while (count < 1000 && recv_(pair.qp[0], 1, 0, 8) == 0)
		count++;
	printf("ibv_post_recv until it is full: at least 8: %d\n", count >= 8);
	CODE("ibv_post_recv, full", recv_(pair.qp[0], 1, 0, 8));
	wr = request(IBV_WR_RDMA_WRITE, 40, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.rdma.rkey = mr->rkey;
	wr.send_flags = 0;
	int error = 0;
	count = 0;
	while (count < 100000 && (error = post(pair.qp[0], &wr)) == 0)
		count++;
	printf("unsignalled until it is full: at least 8: %d, then %s\n", count >= 8, name_of(error));
	destroy(&pair);

	wr = request(IBV_WR_SEND, 1, &sge, 1);
	sge.lkey ^= 0x100000;
	wrong_here("RC SEND by a wrong key", wr);
	sge = piece(MEMORY - 10, 100);
	wrong_here("RC SEND beyond the region", wr);
	sge = piece(0, 100);
	wrong("RC SEND to a RECV too short", wr, 50);
	wr = request(IBV_WR_SEND, 1, &sge, 1);
	wrong("RC SEND without a RECV", wr, -1);
	wr = request(IBV_WR_RDMA_WRITE, 1, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.rdma.rkey = mr->rkey ^ 0x100000;
	wrong("RC WRITE by a wrong key", wr, 200);
	wr.wr.rdma.rkey = mr->rkey;
	wr.wr.rdma.remote_addr = (uint64_t)(memory + MEMORY - 10);
	wrong("RC WRITE beyond the region", wr, 200);
	wr.opcode = IBV_WR_RDMA_READ;
	wrong("RC READ beyond the region", wr, 200);
	struct ibv_mr *poor = ibv_reg_mr(pd, memory, PAGE, 0),
		      *writable = ibv_reg_mr(pd, memory, PAGE, IBV_ACCESS_LOCAL_WRITE);
	wr = request(IBV_WR_RDMA_WRITE, 1, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)memory;
	wr.wr.rdma.rkey = writable->rkey;
	wrong("RC WRITE without the right", wr, 200);
	wr.opcode = IBV_WR_RDMA_READ;
	wrong("RC READ without the right", wr, 200);
	wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, &word, 1);
	wr.wr.atomic.remote_addr = (uint64_t)memory;
	wr.wr.atomic.rkey = writable->rkey;
	wrong("RC atomic without the right", wr, 200);
	wr.wr.atomic.rkey = mr->rkey;
	wr.wr.atomic.remote_addr = (uint64_t)(memory + 4);
	wrong("RC atomic at an odd address", wr, 200);
	struct ibv_sge poor_sge = {(uint64_t)memory, 100, poor->lkey};
	wr = request(IBV_WR_RDMA_READ, 1, &poor_sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.rdma.rkey = mr->rkey;
	wrong_here("RC READ into memory that may not be written", wr);
	wr = request(IBV_WR_SEND, 1, &poor_sge, 1);
	pair = connected(RC);
	recv_(pair.qp[1], 7, 4096, 200);
	CODE("RC SEND from memory that may not be written", post(pair.qp[0], &wr));
	completion("RC SEND from memory that may not be written", pair.cq[0]);
	struct ibv_recv_wr poor_recv = {.wr_id = 3, .sg_list = &poor_sge, .num_sge = 1};
	completion("the RECV before", pair.cq[1]);
	CODE("RECV into memory that may not be written", ibv_post_recv(pair.qp[1], &poor_recv, &bad_recv));
	wr = request(IBV_WR_SEND, 1, &sge, 1);
	post(pair.qp[0], &wr);
	completion("RECV into memory that may not be written, sender", pair.cq[0]);
	completion("RECV into memory that may not be written", pair.cq[1]);
	destroy(&pair);
	struct ibv_pd *other = ibv_alloc_pd(context);
	struct ibv_mr *foreign = ibv_reg_mr(other, memory, PAGE, ALL);
	struct ibv_sge foreign_sge = {(uint64_t)memory, 100, foreign->lkey};
	wr = request(IBV_WR_SEND, 1, &foreign_sge, 1);
	wrong_here("RC SEND by another domain's key", wr);
	wr = request(IBV_WR_RDMA_WRITE, 1, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)memory;
	wr.wr.rdma.rkey = foreign->rkey;
	wrong("RC WRITE by another domain's key", wr, 200);
	ibv_dereg_mr(foreign);
	ibv_dealloc_pd(other);
	ibv_dereg_mr(poor);
	ibv_dereg_mr(writable);
	/* The peer's queue pair has not been told that it may be written to. */
	pair = connected(RC);
	struct ibv_qp_attr attr = {.qp_access_flags = 0};
	CODE("RTS with other rights", ibv_modify_qp(pair.qp[1], &attr, IBV_QP_ACCESS_FLAGS));
	wr = request(IBV_WR_RDMA_WRITE, 1, &sge, 1);
	wr.wr.rdma.remote_addr = (uint64_t)(memory + 8192);
	wr.wr.rdma.rkey = mr->rkey;
	post(pair.qp[0], &wr);
	completion("RC WRITE to a queue pair without the right", pair.cq[0]);
	destroy(&pair);
	struct shape uc = RC;
	uc.type = IBV_QPT_UC;
	pair = connected(uc);
	CODE("UC WRITE", post(pair.qp[0], &wr));
	completion("UC WRITE", pair.cq[0]);
	wr.opcode = IBV_WR_RDMA_READ;
	CODE("UC READ", post(pair.qp[0], &wr));
	wr = request(IBV_WR_SEND, 2, &sge, 1);
	CODE("UC SEND without a RECV", post(pair.qp[0], &wr));
	completion("UC SEND without a RECV", pair.cq[0]);
	destroy(&pair);
}

static struct ibv_qp *make_datagram_qp(struct ibv_cq *send_cq, struct ibv_cq *recv_cq)
{
	struct ibv_qp_init_attr init = {
	    .send_cq = send_cq, .recv_cq = recv_cq, .qp_type = IBV_QPT_UD, .cap = {8, 8, 2, 2, 64}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	must(qp && connect_one(qp, IBV_QPT_UD, 0) == 0, "a datagram queue pair");
	return qp;
}

static void datagrams(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0),
		      *recv_cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_qp *qp = make_datagram_qp(cq, recv_cq);
	struct ibv_ah_attr attr = address();
	attr.port_num = 2;
	MADE("ibv_create_ah, port 2", ibv_create_ah(pd, &attr), ibv_destroy_ah);
	attr = address();
	attr.is_global = 0;
	MADE("ibv_create_ah, without a GRH", ibv_create_ah(pd, &attr), ibv_destroy_ah);
	attr = address();
	attr.grh.sgid_index = 200;
	MADE("ibv_create_ah, a GID index too high", ibv_create_ah(pd, &attr), ibv_destroy_ah);
	attr = address();
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	must(ah != NULL, "an address handle");
	uint32_t most = 128 << port.active_mtu;
	struct ibv_sge sge = piece(0, 100), mtu = piece(0, most), more = piece(0, most + 1);
	struct ibv_send_wr wr = request(IBV_WR_SEND, 1, &sge, 1);
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qp->qp_num;
	wr.wr.ud.remote_qkey = 0x11111111;
	recv_(qp, 10, 65536, 40 + 200);
	CODE("UD SEND to oneself", post(qp, &wr));
	completion("UD SEND to oneself", cq);
	completion("UD SEND to oneself, RECV", recv_cq);
	wr.wr_id = 2;
	wr.sg_list = &mtu;
	recv_(qp, 11, 65536, 40 + most);
	CODE("UD SEND as long as the MTU", post(qp, &wr));
	completion("UD SEND as long as the MTU", cq);
	struct ibv_wc wc;
	printf("UD SEND as long as the MTU, RECV: %d, all of it: %d\n", next(recv_cq, &wc), wc.byte_len == 40 + most);
	wr.wr_id = 3;
	wr.sg_list = &more;
	CODE("UD SEND longer than the MTU", post(qp, &wr));
	no_completion("UD SEND longer than the MTU", cq);
	struct ibv_qp_attr now;
	struct ibv_qp_init_attr init;
	ibv_query_qp(qp, &now, IBV_QP_STATE, &init);
	printf("UD: state: %d\n", now.qp_state);
	ibv_destroy_qp(qp);
	qp = make_datagram_qp(cq, recv_cq);
	wr.wr.ud.remote_qpn = qp->qp_num;
	wr.sg_list = &sge;
	wr.wr_id = 4;
	wr.opcode = IBV_WR_RDMA_WRITE;
	CODE("UD WRITE", post(qp, &wr));
	wr.opcode = IBV_WR_SEND;
	wr.wr.ud.remote_qkey = 1;
	recv_(qp, 12, 65536, 40 + 200);
	CODE("UD SEND with a wrong Q_Key", post(qp, &wr));
	completion("UD SEND with a wrong Q_Key", cq);
	no_completion("UD SEND with a wrong Q_Key, RECV", recv_cq);
	wr.wr.ud.remote_qkey = 0x11111111;
	wr.wr.ud.remote_qpn = 0xfffff0;
	wr.wr_id = 5;
	CODE("UD SEND to nobody", post(qp, &wr));
	completion("UD SEND to nobody", cq);
	ibv_destroy_qp(qp);
	ibv_destroy_ah(ah);
	ibv_destroy_cq(cq);
	ibv_destroy_cq(recv_cq);
}

static void shared_queues(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	if (!srq) {
		say("ibv_create_srq", errno);
		return;
	}
	struct ibv_srq_init_attr none = {.attr = {.max_wr = 0, .max_sge = 1}},
				 many = {.attr = {.max_wr = device.max_srq_wr + 1, .max_sge = 1}},
				 wide = {.attr = {.max_wr = 1, .max_sge = device.max_srq_sge + 1}};
	MADE("ibv_create_srq, no RECVs", ibv_create_srq(pd, &none), ibv_destroy_srq);
	MADE("ibv_create_srq, too many RECVs", ibv_create_srq(pd, &many), ibv_destroy_srq);
	MADE("ibv_create_srq, too many elements", ibv_create_srq(pd, &wide), ibv_destroy_srq);
	struct ibv_srq_attr attr;
	CODE("ibv_query_srq", ibv_query_srq(srq, &attr));
	printf("ibv_query_srq: at least 8: %d, limit %u\n", attr.max_wr >= 8, attr.srq_limit);
	attr.srq_limit = 100000;
	CODE("ibv_modify_srq, limit too high", ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	struct shape shape = RC;
	shape.srq = srq;
	struct pair pair = connected(shape);
	CODE("ibv_destroy_srq with queue pairs", ibv_destroy_srq(srq));
	CODE("ibv_post_recv of a queue pair with a shared queue", recv_(pair.qp[1], 1, 0, 8));
	struct ibv_sge sge = piece(4096, 200);
	struct ibv_recv_wr wr = {.wr_id = 33, .sg_list = &sge, .num_sge = 1}, *bad;
	CODE("ibv_post_srq_recv", ibv_post_srq_recv(srq, &wr, &bad));
	struct ibv_srq_attr limit = {.srq_limit = 1};
	CODE("ibv_modify_srq, limit 1", ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
	struct ibv_sge from = piece(0, 100);
	struct ibv_send_wr send = request(IBV_WR_SEND, 1, &from, 1);
	post(pair.qp[0], &send);
	completion("SEND to a shared queue", pair.cq[0]);
	completion("SEND to a shared queue, peer", pair.cq[1]);
	fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
	struct ibv_async_event event;
	int got = ibv_get_async_event(context, &event);
	printf("the limit's event: %s\n", got ? name_of(errno) : ibv_event_type_str(event.event_type));
	if (!got)
		ibv_ack_async_event(&event);
	int count = 0;
	while (count < 1000 && ibv_post_srq_recv(srq, &wr, &bad) == 0)
		count++;
	printf("ibv_post_srq_recv until it is full: at least 8: %d\n", count >= 8);
	CODE("ibv_post_srq_recv, full", ibv_post_srq_recv(srq, &wr, &bad));
	destroy(&pair);
	CODE("ibv_destroy_srq", ibv_destroy_srq(srq));
}

static void channels(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
	struct ibv_cq *cq = ibv_create_cq(context, 64, &channel, channel, 0), *found;
	void *its;
	struct ibv_cq *plain = ibv_create_cq(context, 64, NULL, NULL, 0);
	CODE("ibv_get_cq_event, nothing there", ibv_get_cq_event(channel, &found, &its));
	CODE("ibv_req_notify_cq without a channel", ibv_req_notify_cq(plain, 0));
	CODE("ibv_destroy_comp_channel with a CQ", ibv_destroy_comp_channel(channel));
	struct ibv_qp *qp[2];
	struct shape shape = RC;
	qp[0] = make_qp(plain, &shape);
	qp[1] = make_qp(cq, &shape);
	for (int side = 0; side < 2; side++)
		must(connect_one(qp[side], IBV_QPT_RC, qp[!side]->qp_num) == 0, "connecting");
	for (int i = 0; i < 6; i++)
		recv_(qp[1], i, 4096, 200);
	struct ibv_sge sge = piece(0, 100);
	struct ibv_send_wr wr = request(IBV_WR_SEND, 1, &sge, 1);
	post(qp[0], &wr);
	completion("a SEND before arming", plain);
	completion("its RECV", cq);
	CODE("not armed", ibv_get_cq_event(channel, &found, &its));
	CODE("ibv_req_notify_cq", ibv_req_notify_cq(cq, 0));
	post(qp[0], &wr);
	completion("a SEND after arming", plain);
	usleep(20000);
	CODE("armed", ibv_get_cq_event(channel, &found, &its));
	printf("its CQ and context: %d %d\n", found == cq, its == &channel);
	ibv_ack_cq_events(cq, 1);
	CODE("once", ibv_get_cq_event(channel, &found, &its));
	completion("its RECV", cq);
	CODE("ibv_req_notify_cq, solicited", ibv_req_notify_cq(cq, 1));
	post(qp[0], &wr);
	completion("a SEND that is not solicited", plain);
	usleep(20000);
	CODE("no event", ibv_get_cq_event(channel, &found, &its));
	wr.send_flags |= IBV_SEND_SOLICITED;
	post(qp[0], &wr);
	completion("a solicited SEND", plain);
	usleep(20000);
	CODE("an event", ibv_get_cq_event(channel, &found, &its));
	ibv_ack_cq_events(cq, 1);
	completion("its RECV", cq);
	completion("its RECV", cq);
	ibv_destroy_qp(qp[0]);
	ibv_destroy_qp(qp[1]);
	CODE("ibv_destroy_cq", ibv_destroy_cq(cq));
	ibv_destroy_cq(plain);
	CODE("ibv_destroy_comp_channel", ibv_destroy_comp_channel(channel));
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct ibv_device **list = ibv_get_device_list(NULL);
	must(list && *list, "a device");
	context = ibv_open_device(*list);
	must(context != NULL, "opening");
	must(ibv_query_device(context, &device) == 0 && ibv_query_port(context, 1, &port) == 0, "asking");
	printf("port: state %d, phys_state %d, link layer %d, lid %d\n", port.state, port.phys_state, port.link_layer,
	       port.lid);
	printf("device: atomics %d, ports %d\n", device.atomic_cap, device.phys_port_cnt);
	CODE("ibv_query_port, 2", ibv_query_port(context, 2, &port));
	CODE("ibv_query_port, 0", ibv_query_port(context, 0, &port));
	ibv_query_port(context, 1, &port);
	for (int i = 0; i < port.gid_tbl_len; i++) {
		struct ibv_gid_entry entry;
		if (ibv_query_gid_ex(context, 1, i, &entry, 0) == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2) {
			sgid_index = i;
			gid = entry.gid;
			break;
		}
	}
	union ibv_gid other;
	uint16_t pkey;
	CODE("ibv_query_gid, 9999", ibv_query_gid(context, 1, 9999, &other));
	CODE("ibv_query_gid, port 2", ibv_query_gid(context, 2, 0, &other));
	CODE("ibv_query_pkey, 0", ibv_query_pkey(context, 1, 0, &pkey));
	printf("ibv_query_pkey, 0: %x\n", ntohs(pkey));
	CODE("ibv_query_pkey, 9999", ibv_query_pkey(context, 1, 9999, &pkey));
	pd = ibv_alloc_pd(context);
	memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mr = ibv_reg_mr(pd, memory, MEMORY, ALL);
	must(pd && mr, "memory");
	regions();
	queues();
	changes(IBV_QPT_RC, "RC");
	changes(IBV_QPT_UC, "UC");
	changes(IBV_QPT_UD, "UD");
	states(IBV_QPT_RC, "RC");
	states(IBV_QPT_UC, "UC");
	states(IBV_QPT_UD, "UD");
	requests();
	datagrams();
	shared_queues();
	channels();
	CODE("ibv_dealloc_pd with a region", ibv_dealloc_pd(pd));
	CODE("ibv_dereg_mr", ibv_dereg_mr(mr));
	CODE("ibv_dealloc_pd", ibv_dealloc_pd(pd));
	CODE("ibv_close_device", ibv_close_device(context));
	ibv_free_device_list(list);
}
