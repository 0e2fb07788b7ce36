/*
 * What a sender has seen complete is received, however the sender ends and whatever the receiver does meanwhile:
 * `last_words ROUNDS` tries all ways of one with all ways of the other, each in processes of their own.
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>

#include "rc.h"

enum {
	MESSAGES = 24,
	/* Some RECVs are used by nothing. */
	ROOM = MESSAGES + 4,
	/* Not in one piece, and not in the line of its message. */
	LONG = 9000,
};

/* How the sender ends. */
static const char *const endings[] = {
	"destroys its queue pair", "closes its device", "disconnects", "exits", "calls _exit", "is killed", "is killed half way",
};
enum { DESTROYS, CLOSES, DISCONNECTS, EXITS, EXITS_AT_ONCE, KILLED, KILLED_HALF_WAY, ENDINGS };

/* What the receiver does. */
static const char *const receivings[] = {
	"polls all the time", "polls when the sender has ended", "sleeps", "sleeps and wakes for what is solicited",
	"hears of the end first", "disconnects first", "fails its queue pair first", "fails its queue pair asleep",
};
enum { POLLS, POLLS_LATE, SLEEPS, SLEEPS_SOLICITED, HEARS, DISCONNECTS_FIRST, FAILS, FAILS_ASLEEP, RECEIVINGS };

/* Where the messages' RECVs are. */
static const char *const queues[] = { "", ", with a shared queue" };

/* What both sides and whoever started them see. */
static struct {
	_Atomic int port;
	/* Where WRITEs go. */
	_Atomic uint64_t address;
	_Atomic uint32_t key;
	/* Messages that the sender has seen complete. */
	_Atomic int completed;
	/* It has done what it does to end, or has nothing left to do but that. */
	_Atomic int ended;
	_Atomic int received;
} *seen;

struct side {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	char *memory;
};

static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	CHECK(rdma_get_cm_event(channel, &event) == 0);
	if (event->event != type)
		fprintf(stderr, "%s, status %d\n", rdma_event_str(event->event), event->status);
	CHECK(event->event == type);
	id = event->id;
	CHECK(rdma_ack_cm_event(event) == 0);
	return id;
}

static void make(struct side *side, int is_shared)
{
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = ROOM, .max_sge = 1 } };
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = MESSAGES, .max_recv_wr = ROOM, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 8 },
	};

	CHECK((side->pd = ibv_alloc_pd(side->id->verbs)));
	CHECK((side->channel = ibv_create_comp_channel(side->id->verbs)));
	CHECK((side->cq = ibv_create_cq(side->id->verbs, 2 * ROOM, NULL, side->channel, 0)));
	if (is_shared)
		CHECK((side->srq = ibv_create_srq(side->pd, &srq)));
	init.send_cq = init.recv_cq = side->cq;
	init.srq = side->srq;
	CHECK(rdma_create_qp(side->id, side->pd, &init) == 0);
	CHECK(posix_memalign((void **) &side->memory, 4096, ROOM * LONG) == 0);
	memset(side->memory, 0, ROOM * LONG);
	CHECK((side->mr = ibv_reg_mr(side->pd, side->memory, ROOM * LONG, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)));
}

/* Messages of all kinds, one after the other. */
static void say(struct side *side, int at)
{
	int is_write = at % 3 == 2, len = at % 3 == 1 ? LONG : 8;
	struct ibv_sge sge = { (uintptr_t) side->memory + at * LONG, len, side->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = at, .sg_list = &sge, .num_sge = 1, .imm_data = htonl(at), .send_flags = IBV_SEND_SIGNALED }, *bad;

	memset(side->memory + at * LONG, at + 1, len);
	wr.opcode = is_write ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM;
	wr.wr.rdma.remote_addr = seen->address + at * LONG;
	wr.wr.rdma.rkey = seen->key;
	/* A sleeper for these alone finds all others with the last. */
	if (at == MESSAGES - 1)
		wr.send_flags |= IBV_SEND_SOLICITED;
	if (len == 8)
		wr.send_flags |= IBV_SEND_INLINE;
	CHECK(ibv_post_send(side->id->qp, &wr, &bad) == 0);
}

static void waits_for_its_end(void)
{
	for (;;)
		pause();
}

static void sender(int ending, int half_way)
{
	struct side side = { .events = rdma_create_event_channel() };
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = seen->port };
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };

	CHECK(side.events && rdma_create_id(side.events, &side.id, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(side.id, NULL, (struct sockaddr *) &to, 60000) == 0);
	expect(side.events, RDMA_CM_EVENT_ADDR_RESOLVED);
	CHECK(rdma_resolve_route(side.id, 60000) == 0);
	expect(side.events, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make(&side, 0);
	CHECK(rdma_connect(side.id, &param) == 0);
	expect(side.events, RDMA_CM_EVENT_ESTABLISHED);
	for (int at = 0; at < MESSAGES; at++)
		say(&side, at);
	for (int at = 0; at < MESSAGES; at++) {
		struct ibv_wc wc = rc_poll(side.cq);

		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t) at);
		seen->completed++;
		if (ending == KILLED_HALF_WAY && at == half_way)
			raise(SIGKILL);
	}
	switch (ending) {
	case EXITS:
		exit(0);
	case EXITS_AT_ONCE:
		_exit(0);
	case KILLED:
		raise(SIGKILL);
		break;
	case DISCONNECTS:
		CHECK(rdma_disconnect(side.id) == 0);
		break;
	case CLOSES:
	case DESTROYS:
		rdma_destroy_qp(side.id);
		if (ending == DESTROYS)
			break;
		CHECK(ibv_dereg_mr(side.mr) == 0 && ibv_destroy_cq(side.cq) == 0);
		CHECK(ibv_destroy_comp_channel(side.channel) == 0 && ibv_dealloc_pd(side.pd) == 0);
		/* librdmacm closes the device with the last of its identifiers and channels. */
		CHECK(rdma_destroy_id(side.id) == 0);
		rdma_destroy_event_channel(side.events);
		break;
	}
	seen->ended = 1;
	waits_for_its_end();
}

/* Whether the sender does not do anything more. */
static int has_ended(int ending, int sender)
{
	char byte;

	/* The end of the pipe that the sender alone can write to. */
	return ending == DESTROYS || ending == CLOSES || ending == DISCONNECTS ? seen->ended : read(sender, &byte, 1) == 0;
}

static void receives(struct side *side, const struct ibv_wc *wc)
{
	int at = seen->received, is_write = at % 3 == 2, len = at % 3 == 1 ? LONG : 8;
	char *bytes = side->memory + (is_write ? at : (int) wc->wr_id) * LONG;

	CHECK(at < MESSAGES && (int) wc->wr_id == at && ntohl(wc->imm_data) == (uint32_t) at);
	CHECK(wc->opcode == (is_write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV));
	CHECK((int) wc->byte_len == len && bytes[0] == at + 1 && bytes[len - 1] == at + 1);
	seen->received++;
}

static void receiver(int receiving, int ending, int is_shared, int sender)
{
	struct side side = { .events = rdma_create_event_channel() };
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
	struct ibv_qp_attr to_err = { .qp_state = IBV_QPS_ERR };
	struct rdma_cm_id *listener;
	int sleeps = receiving == SLEEPS || receiving == SLEEPS_SOLICITED || receiving == FAILS_ASLEEP, has_failed = 0, flushed = 0;

	CHECK(side.events && rdma_create_id(side.events, &listener, NULL, RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(listener, (struct sockaddr *) &at) == 0 && rdma_listen(listener, 1) == 0);
	seen->port = rdma_get_src_port(listener);
	side.id = expect(side.events, RDMA_CM_EVENT_CONNECT_REQUEST);
	make(&side, is_shared);
	for (int recv = 0; recv < ROOM; recv++) {
		struct ibv_sge sge = { (uintptr_t) side.memory + recv * LONG, LONG, side.mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = recv, .sg_list = &sge, .num_sge = 1 }, *bad;

		CHECK((is_shared ? ibv_post_srq_recv(side.srq, &wr, &bad) : ibv_post_recv(side.id->qp, &wr, &bad)) == 0);
	}
	seen->address = (uintptr_t) side.memory;
	seen->key = side.mr->rkey;
	if (sleeps)
		CHECK(ibv_req_notify_cq(side.cq, receiving == SLEEPS_SOLICITED) == 0);
	CHECK(rdma_accept(side.id, &param) == 0);
	expect(side.events, RDMA_CM_EVENT_ESTABLISHED);

	switch (receiving) {
	case POLLS_LATE:
	case FAILS:
	case FAILS_ASLEEP:
		while (!has_ended(ending, sender))
			usleep(100);
		break;
	case HEARS:
	case DISCONNECTS_FIRST:
		/* The queue pair alone says nothing when it goes. */
		if (ending != DESTROYS)
			expect(side.events, RDMA_CM_EVENT_DISCONNECTED);
		else
			while (!has_ended(ending, sender))
				usleep(100);
		break;
	}
	if (receiving == DISCONNECTS_FIRST)
		CHECK(rdma_disconnect(side.id) == 0);
	if (receiving == FAILS || receiving == FAILS_ASLEEP)
		CHECK(ibv_modify_qp(side.id->qp, &to_err, IBV_QP_STATE) == 0);
	has_failed = receiving == DISCONNECTS_FIRST || receiving == FAILS || receiving == FAILS_ASLEEP;

	for (;;) {
		struct ibv_wc wc;
		struct ibv_cq *cq;
		void *context;
		int found = ibv_poll_cq(side.cq, 1, &wc);

		CHECK(found >= 0);
		if (found && wc.status == IBV_WC_SUCCESS) {
			CHECK(flushed == 0);
			receives(&side, &wc);
		} else if (found) {
			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && has_failed && !is_shared);
			/* What is flushed comes after all that has arrived. */
			CHECK(seen->received >= seen->completed);
			flushed++;
		} else if (sleeps) {
			CHECK(ibv_get_cq_event(side.channel, &cq, &context) == 0);
			ibv_ack_cq_events(cq, 1);
			CHECK(ibv_req_notify_cq(side.cq, receiving == SLEEPS_SOLICITED) == 0);
		}
		if (has_failed && !is_shared ? seen->received + flushed == ROOM : seen->received == MESSAGES)
			return;
		/* A part of them was enough. */
		if (ending == KILLED_HALF_WAY && (!has_failed || is_shared) && !sleeps && !found && has_ended(ending, sender)
		    && seen->received >= seen->completed)
			return;
	}
}

/* Both sides, until the receiver has what it waits for. */
static int round_of(int ending, int receiving, int is_shared, int half_way)
{
	int pipes[2], status;
	pid_t receives, sends;

	memset(seen, 0, sizeof *seen);
	CHECK(pipe(pipes) == 0);
	CHECK((receives = fork()) >= 0);
	if (receives == 0) {
		close(pipes[1]);
		alarm(120);
		receiver(receiving, ending, is_shared, pipes[0]);
		exit(0);
	}
	CHECK((sends = fork()) >= 0);
	if (sends == 0) {
		close(pipes[0]);
		while (!seen->port)
			usleep(100);
		sender(ending, half_way);
	}
	close(pipes[0]);
	close(pipes[1]);
	CHECK(waitpid(receives, &status, 0) == receives);
	kill(sends, SIGKILL);
	CHECK(waitpid(sends, NULL, 0) == sends);
	if (status != 0)
		fprintf(stderr, "a sender that %s, a receiver that %s%s: %d of %d received (status %#x)\n", endings[ending],
			receivings[receiving], queues[is_shared], seen->received, seen->completed, status);
	return status != 0;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1, failures = 0, tried = 0;

	seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(seen != MAP_FAILED);
	for (int round = 0; round < rounds; round++)
		for (int ending = 0; ending < ENDINGS; ending++)
			for (int receiving = 0; receiving < RECEIVINGS; receiving++)
				for (int is_shared = 0; is_shared < 2; is_shared++) {
					/* No last message, no solicited event; nobody knows how many a sleeper is to wait for. */
					if (ending == KILLED_HALF_WAY && (receiving == SLEEPS || receiving == SLEEPS_SOLICITED))
						continue;
					/* The RECVs of a shared queue are not flushed. */
					if (is_shared && receiving == FAILS_ASLEEP && ending == KILLED_HALF_WAY)
						continue;
					failures += round_of(ending, receiving, is_shared, (round * 7 + receiving) % (MESSAGES - 1));
					tried++;
				}
	printf("%d of %d went wrong\n", failures, tried);
	return failures != 0;
}
