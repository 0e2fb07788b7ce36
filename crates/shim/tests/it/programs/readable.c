/* A program that waits by poll() and then asks for the event, which may not keep it. */
#include <dirent.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "rc.h"

static struct ibv_cq *event_of(struct rc *rc)
{
	struct pollfd fd = { rc->channel->fd, POLLIN, 0 };
	struct ibv_cq *cq;
	void *context;

	CHECK(poll(&fd, 1, -1) == 1);
	CHECK(ibv_get_cq_event(rc->channel, &cq, &context) == 0);
	ibv_ack_cq_events(cq, 1);
	return cq;
}

/* A descriptor that is readable for nothing: anybody of this user can ring. */
static void ring_for_nothing(const char *directory)
{
	int to = socket(AF_UNIX, SOCK_DGRAM, 0);
	DIR *dir = opendir(directory);
	struct dirent *entry;

	CHECK(to >= 0 && dir);
	while ((entry = readdir(dir))) {
		struct sockaddr_un address = { .sun_family = AF_UNIX };
		int len = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory, entry->d_name);

		CHECK(len < (int) sizeof address.sun_path);
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			ring_for_nothing(address.sun_path);
		/* One of another kind takes none. */
		else if (entry->d_type == DT_SOCK)
			(void) !sendto(to, "x", 1, MSG_DONTWAIT, (struct sockaddr *) &address, sizeof address);
	}
	closedir(dir);
	close(to);
}

int main(void)
{
	struct rc rc = rc_open();
	struct pollfd fd = { rc.channel->fd, POLLIN, 0 };
	struct ibv_wc wc;

	/* The completion of an armed queue makes an event, also if the program finds it before. */
	CHECK(ibv_req_notify_cq(rc.cq, 0) == 0);
	CHECK(rc_post(&rc, 0, IBV_WR_RDMA_WRITE, 1, 8) == 0);
	wc = rc_poll(rc.cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 1);
	CHECK(event_of(&rc) == rc.cq);
	/* That was it. */
	CHECK(poll(&fd, 1, 0) == 0);

	/* Also when it arms again before it takes the event. */
	CHECK(ibv_req_notify_cq(rc.cq, 0) == 0);
	CHECK(rc_post(&rc, 0, IBV_WR_RDMA_WRITE, 2, 8) == 0);
	CHECK(rc_poll(rc.cq).wr_id == 2);
	CHECK(ibv_req_notify_cq(rc.cq, 0) == 0);
	CHECK(event_of(&rc) == rc.cq);

	/* What is readable for nothing keeps nobody, and takes no event. */
	CHECK(ibv_req_notify_cq(rc.cq, 0) == 0);
	ring_for_nothing(getenv("VERVAIN_RUN_DIR"));
	CHECK(event_of(&rc) == rc.cq);
	CHECK(ibv_poll_cq(rc.cq, 1, &wc) == 0);
	CHECK(rc_post(&rc, 0, IBV_WR_RDMA_WRITE, 3, 8) == 0);
	CHECK(event_of(&rc) == rc.cq);
	CHECK(rc_poll(rc.cq).wr_id == 3);

	CHECK(rc_close(&rc) == 0);
	puts("all is well");
	return 0;
}
