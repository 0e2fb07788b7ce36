/* A TCP program that knows nothing of RDMA: a server that sends back what one client sends, and that client. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LEN = 40000, ROUNDS = 50 };

static unsigned char sent[LEN], got[LEN];

static int failed(const char *what)
{
	perror(what);
	return 1;
}

static int serve(int s, struct sockaddr_in *address)
{
	ssize_t n;
	long bytes = 0;

	if (bind(s, (struct sockaddr *) address, sizeof *address) || listen(s, 1))
		return failed("listen");
	int c = accept(s, NULL, NULL);
	if (c < 0)
		return failed("accept");
	while ((n = recv(c, got, LEN, 0)) > 0) {
		for (ssize_t at = 0, more; at < n; at += more)
			if ((more = send(c, got + at, n - at, 0)) <= 0)
				return failed("send");
		bytes += n;
	}
	printf("served %ld bytes\n", bytes);
	close(c);
	close(s);
	return 0;
}

static int call(int s, struct sockaddr_in *address)
{
	if (connect(s, (struct sockaddr *) address, sizeof *address))
		return failed("connect");
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < LEN; i++)
			sent[i] = i * 31 + round;
		if (send(s, sent, LEN, 0) != LEN)
			return failed("send");
		for (ssize_t at = 0, n; at < LEN; at += n)
			if ((n = recv(s, got + at, LEN - at, 0)) <= 0)
				return failed("recv");
		if (memcmp(sent, got, LEN))
			return failed("compare");
	}
	printf("echoed %d bytes\n", LEN * ROUNDS);
	shutdown(s, SHUT_RDWR);
	close(s);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[2])) };
	int s = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	(void) argc;
	return strcmp(argv[1], "serve") ? call(s, &address) : serve(s, &address);
}
