/* An event channel of librdmacm's, by its descriptor: who waits there, who closes it, and who forks. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(is) \
	do { \
		if (!(is)) { \
			fprintf(stderr, "line %d: not %s (errno %d)\n", __LINE__, #is, errno); \
			exit(1); \
		} \
	} while (0)

static int fd;

static ssize_t get_event(void)
{
	static char answer[336];
	struct { uint32_t cmd; uint16_t in, out; uint64_t answer; } command =
		{ 12, 8, sizeof answer, (uintptr_t) answer };

	return write(fd, &command, sizeof command);
}

/* An identifier for connections. */
static ssize_t create_id(void)
{
	uint32_t id;
	struct { uint32_t cmd; uint16_t in, out; uint64_t uid, answer; uint16_t ps; uint8_t rest[6]; } command =
		{ 0, 24, sizeof id, 1, (uintptr_t) &id, 0x106, { 0 } };

	return write(fd, &command, sizeof command);
}

static int open_channel(void)
{
	return open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
}

static void *wait_for_event(void *nothing)
{
	get_event();
	return nothing;
}

static void on_alarm(int signal)
{
	(void) signal;
}

static void is_a_device(void)
{
	struct stat stat;

	CHECK(fstat(fd, &stat) == 0 && S_ISCHR(stat.st_mode));
	CHECK(write(fd, "x", 1) == -1 && errno == EINVAL);
	CHECK(create_id() == 32);
}

static void waits_as_its_flags_say(void)
{
	struct sigaction action = { .sa_handler = on_alarm };
	struct itimerspec soon = { .it_value = { .tv_nsec = 1000000 }, .it_interval = { .tv_nsec = 1000000 } };
	struct itimerspec never = { { 0, 0 }, { 0, 0 } };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	timer_t timer;

	/* Again and again, so that none comes too early. */
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	CHECK(timer_settime(timer, 0, &soon, NULL) == 0);
	CHECK(get_event() == -1 && errno == EINTR);
	CHECK(timer_settime(timer, 0, &never, NULL) == 0);
	CHECK(fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK) == 0);
	CHECK(get_event() == -1 && errno == EAGAIN);
	CHECK(fcntl(fd, F_SETFL, O_RDWR) == 0);
}

static void who_waits_can_be_cancelled(void)
{
	pthread_t thread;
	void *result;

	CHECK(pthread_create(&thread, NULL, wait_for_event, NULL) == 0);
	CHECK(pthread_cancel(thread) == 0);
	CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

static void a_child_begins_anew(void)
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		CHECK(create_id() == -1 && errno == ENODEV);
		CHECK(get_event() == -1 && errno == ENODEV);
		CHECK(close(fd) == 0);
		fd = open_channel();
		CHECK(create_id() == 32);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(create_id() == 32);
}

/* A descriptor that is another file's then is a file's. */
static void what_is_closed_is_no_channel(void)
{
	int other, null = open("/dev/null", O_WRONLY);

	CHECK(close(fd) == 0);
	CHECK(create_id() == -1 && errno == EBADF);
	CHECK((fd = open_channel()) >= 0);
	CHECK(dup2(null, fd) == fd);
	CHECK(write(fd, "x", 1) == 1);
	CHECK(close(fd) == 0);
	CHECK((fd = open_channel()) >= 0);
	closefrom(fd);
	CHECK((fd = open_channel()) >= 0);
	/* Without libc: the number is free all the same. */
	CHECK(create_id() == 32);
	CHECK(syscall(SYS_close, fd) == 0);
	CHECK((other = open_channel()) == fd);
	CHECK(create_id() == 32);
	CHECK(close(fd) == 0);
	CHECK((other = open("/dev/null", O_WRONLY)) >= 0);
	CHECK(write(other, "x", 1) == 1);
}

int main(void)
{
	fd = open_channel();
	CHECK(fd >= 0);
	is_a_device();
	waits_as_its_flags_say();
	who_waits_can_be_cancelled();
	a_child_begins_anew();
	what_is_closed_is_no_channel();
	puts("all is well");
	return 0;
}
