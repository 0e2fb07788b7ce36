/* WRITEs to memory of every kind, READs it and counts in it, over a connection of the process to itself. */
#define _GNU_SOURCE
#include "rc.h"

#include <fcntl.h>
#include <sys/mman.h>

/* Longer than what is copied at once, and of no round length. */
#define MUCH 300001

static char bss[MUCH + 8];
static char local[MUCH + 8];

static void one(struct rc *rc, struct ibv_mr *mine, enum ibv_wr_opcode opcode, struct ibv_mr *mr, char *at, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t) local, len, mine->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode }, *bad;
	struct ibv_wc wc;

	wr.send_flags = IBV_SEND_SIGNALED;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t) at;
		wr.wr.atomic.rkey = mr->rkey;
		wr.wr.atomic.compare_add = 2;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t) at;
		wr.wr.rdma.rkey = mr->rkey;
	}
	CHECK(ibv_post_send(rc->qp[0], &wr, &bad) == 0);
	wc = rc_poll(rc->cq);
	CHECK(wc.status == IBV_WC_SUCCESS);
}

static void use(struct rc *rc, struct ibv_mr *mine, const char *kind, char *memory)
{
	struct ibv_mr *mr = ibv_reg_mr(rc->pd, memory, MUCH + 7, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
				       | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	char *word = (char *) (((uintptr_t) memory + 4096) & ~(uintptr_t) 7);
	uint64_t before, after;

	CHECK(mr);
	for (int at = 0; at < MUCH; at++)
		local[at] = (char) (at * 7 + kind[0]);
	one(rc, mine, IBV_WR_RDMA_WRITE, mr, memory + 3, MUCH);
	CHECK(memcmp(memory + 3, local, MUCH) == 0);
	memset(local, 0, MUCH);
	memset(memory + 3, kind[1], 1000);
	one(rc, mine, IBV_WR_RDMA_READ, mr, memory + 3, MUCH);
	CHECK(memcmp(memory + 3, local, MUCH) == 0);
	memcpy(&before, word, 8);
	one(rc, mine, IBV_WR_ATOMIC_FETCH_AND_ADD, mr, word, 8);
	memcpy(&after, word, 8);
	CHECK(after == before + 2 && memcmp(local, &before, 8) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	printf("%s: written, read, counted\n", kind);
}

static char *map(const char *path, int flags)
{
	char *memory;
	int fd = open(path, O_RDWR | O_CREAT, 0600);

	CHECK(fd >= 0);
	CHECK(ftruncate(fd, MUCH + 8) == 0);
	memory = mmap(NULL, MUCH + 8, PROT_READ | PROT_WRITE, flags, fd, 0);
	CHECK(memory != MAP_FAILED);
	CHECK(close(fd) == 0 && unlink(path) == 0);
	return memory;
}

int main(void)
{
	char stack[MUCH + 8], path[4096];
	const char *run_dir = getenv("VERVAIN_RUN_DIR");
	struct rc rc = rc_open();
	struct ibv_mr *mine = ibv_reg_mr(rc.pd, local, sizeof local, IBV_ACCESS_LOCAL_WRITE);
	char *heap = malloc(MUCH + 40);

	CHECK(mine && heap && run_dir);
	CHECK((size_t) snprintf(path, sizeof path, "%s/kinds-XXXXXX", run_dir) < sizeof path);
	use(&rc, mine, "bss", bss);
	use(&rc, mine, "stack", stack);
	use(&rc, mine, "heap", heap + 24);
	CHECK(close(mkstemp(path)) == 0);
	use(&rc, mine, "private file", map(path, MAP_PRIVATE));
	use(&rc, mine, "shared file", map(path, MAP_SHARED));
	CHECK(ibv_dereg_mr(mine) == 0);
	return rc_close(&rc);
}
