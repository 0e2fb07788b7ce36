/* What a device answers: right and wrong calls of libibverbs, a line each, so that two devices can be compared.
 *
 * What devices may choose (keys, handles, how much more than was asked for) is left out. */
#define _GNU_SOURCE
#include "answers/device.h"
#include "answers/requests.h"
#include "answers/states.h"

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
