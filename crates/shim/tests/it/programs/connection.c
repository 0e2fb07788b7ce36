/*
 * Both sides of a connection by librdmacm in one process: `connection NAME careful` expects that it goes wrong, `careless` ends with
 * 3 when it notices what has come of that.
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#include "rc.h"

static int careless;

static void found(const char *what)
{
	printf("found: %s\n", what);
	exit(3);
}

static int waits(struct rdma_event_channel *channel)
{
	struct pollfd fd = { channel->fd, POLLIN, 0 };

	return poll(&fd, 1, 0);
}

/* The next event has to be this one; its identifier. */
static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	CHECK(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type || event->status != status)
		fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
	CHECK(event->event == type && event->status == status);
	id = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	CHECK(rdma_create_qp(id, NULL, &init) == 0);
}

static void post(struct rdma_cm_id *id, int is_recv)
{
	static char memory[64];
	struct ibv_mr *mr = ibv_reg_mr(id->pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = { (uintptr_t) memory, 8, mr ? mr->lkey : 0 };
	struct ibv_recv_wr recv = { .sg_list = &sge, .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;

	CHECK(mr);
	CHECK((is_recv ? ibv_post_recv(id->qp, &recv, &bad_recv) : ibv_post_send(id->qp, &send, &bad_send)) == 0);
}

static struct sockaddr_in address = { .sin_family = AF_INET };

/* A client that calls, and says who it is. */
static struct rdma_cm_id *call(struct rdma_event_channel *channel, const char *name)
{
	struct rdma_conn_param param = { .private_data = name, .private_data_len = 1, .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *) &address, 1000) == 0);
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	CHECK(rdma_resolve_route(id, 1000) == 0);
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	make_qp(id);
	CHECK(rdma_connect(id, &param) == 0);
	return id;
}

/* Who calls next. */
static char next_call(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	char name;

	CHECK(rdma_get_cm_event(channel, &event) == 0 && event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	name = *(const char *) event->param.conn.private_data;
	CHECK(rdma_ack_cm_event(event) == 0);
	return name;
}

/* The first of two calls is heard of behind the second. */
static void two_calls(struct rdma_event_channel *theirs, struct rdma_event_channel *ours)
{
	char first, second;

	call(ours, "a");
	call(ours, "b");
	first = next_call(theirs);
	second = next_call(theirs);
	if (careless && first != 'a')
		found("a call that is heard of behind a later one");
	CHECK(first == 'b' && second == 'a');
}

int main(int argc, char **argv)
{
	struct rdma_event_channel *theirs = rdma_create_event_channel(), *ours = rdma_create_event_channel();
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct rdma_cm_id *listener, *client, *server;
	int is_late;

	CHECK(argc == 3 && theirs && ours);
	is_late = !strcmp(argv[1], "late-established");
	careless = !strcmp(argv[2], "careless");
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(rdma_create_id(theirs, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *) &address) == 0 && rdma_listen(listener, 2) == 0);
	address.sin_port = rdma_get_src_port(listener);
	if (!strcmp(argv[1], "two-calls")) {
		two_calls(theirs, ours);
		puts("all is well");
		return 0;
	}
	client = call(ours, "a");
	server = expect(theirs, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
	make_qp(server);
	post(server, 1);
	CHECK(rdma_accept(server, &param) == 0);
	expect(ours, RDMA_CM_EVENT_ESTABLISHED, 0);
	if (is_late) {
		int is_established = 0;
		struct ibv_wc wc;

		post(client, 0);
		do
			is_established |= waits(theirs);
		while (ibv_poll_cq(server->recv_cq, 1, &wc) == 0);
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (careless && !is_established)
			found("a message on a connection that is not established");
		CHECK(!is_established);
	}
	expect(theirs, RDMA_CM_EVENT_ESTABLISHED, 0);
	if (!strcmp(argv[1], "lost-dreq")) {
		CHECK(rdma_disconnect(client) == 0);
		expect(ours, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
		/* Otherwise that would have been the answer of the other side, which would know by now. */
		if (careless && !waits(theirs))
			found("a peer that has left without a word");
		CHECK(!waits(theirs));
		CHECK(rdma_disconnect(server) == 0);
		expect(theirs, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT);
	}
	puts("all is well");
	return 0;
}
