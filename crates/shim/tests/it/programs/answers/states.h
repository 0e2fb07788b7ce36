/* What changes of queue pairs are answered, and what can be posted in which state. */
#pragma once
#include "device.h"

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
