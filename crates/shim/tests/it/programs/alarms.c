/* Has alarms of its own, by a timer and by another process, while it ends: they are not for whoever sums up then, and go on afterwards. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(is) \
	do { \
		if (!(is)) { \
			fprintf(stderr, "line %d: not %s (errno %d)\n", __LINE__, #is, errno); \
			_exit(1); \
		} \
	} while (0)

#define OFTEN_US 50
#define PAIRS 40

static volatile sig_atomic_t alarms;
static pid_t sender;

static void on_alarm(int signal)
{
	(void) signal;
	alarms++;
}

/* Called when everything has been summed up. */
static void last(void)
{
	struct itimerval left;
	struct sigaction action;
	int before;

	CHECK(kill(sender, SIGKILL) == 0 && waitpid(sender, NULL, 0) == sender);
	CHECK(sigaction(SIGALRM, NULL, &action) == 0 && action.sa_handler == on_alarm);
	CHECK(getitimer(ITIMER_REAL, &left) == 0 && left.it_interval.tv_usec == OFTEN_US);
	/* The timer alone brings these. */
	for (before = alarms; alarms < before + 3;)
		pause();
	printf("its alarms go on\n");
}

/* A program's destructors run before its libraries', and what they register runs after all of those. */
__attribute__((destructor)) static void register_last(void)
{
	if (sender > 0)
		CHECK(atexit(last) == 0);
}

/* Has its parent alarmed until that kills it, or is not there any more. */
static void alarm_parent(pid_t parent)
{
	while (getppid() == parent) {
		kill(parent, SIGALRM);
		usleep(OFTEN_US);
	}
	_exit(0);
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct itimerval often = { { 0, OFTEN_US }, { 0, OFTEN_US } };
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_pd *pd;
	pid_t parent;

	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	parent = getpid();
	CHECK((sender = fork()) >= 0);
	if (sender == 0)
		alarm_parent(parent);
	CHECK((list = ibv_get_device_list(NULL)) && list[0]);
	CHECK((context = ibv_open_device(list[0])));
	ibv_free_device_list(list);
	CHECK((pd = ibv_alloc_pd(context)));
	CHECK((init.send_cq = init.recv_cq = ibv_create_cq(context, 2 * PAIRS, NULL, NULL, 0)));
	/* What it leaves behind is told at its end. */
	for (int made = 0; made < PAIRS; made++)
		CHECK(ibv_create_qp(pd, &init));
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	while (alarms < 3)
		pause();
	return 0;
}
