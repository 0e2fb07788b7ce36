/* Memory regions: registered anew, paged on demand, of the whole address space. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "ends.h"

/* Registering anew under the same key. */
static void rereg(void)
{
	struct end a = begun(IBV_QPT_RC, 16, ALL, NULL), b = begun(IBV_QPT_RC, 16, ALL, NULL);
	uint32_t lkey = b.mr->lkey, rkey = b.mr->rkey;
	uint64_t at = (uintptr_t) b.bytes;
	struct ibv_pd *other = ibv_alloc_pd(b.context);

	connected(&a, &b, IBV_QPT_RC);
	CHECK(written(&a, at, rkey, "at first") == IBV_WC_SUCCESS && !memcmp(b.bytes, "at first", 8));
	/* Another right, which a peer has used before. */
	CHECK(!ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ));
	CHECK(b.mr->lkey == lkey && b.mr->rkey == rkey && b.mr->addr == b.bytes);
	CHECK(written(&a, at, rkey, "too late") == IBV_WC_REM_ACCESS_ERR && !memcmp(b.bytes, "at first", 8));
	connected(&a, &b, IBV_QPT_RC);
	CHECK(!ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL));
	CHECK(written(&a, at, rkey, "it may. ") == IBV_WC_SUCCESS && !memcmp(b.bytes, "it may. ", 8));
	/* Another place. */
	CHECK(!ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, b.bytes + LEN, 128, 0));
	CHECK(b.mr->lkey == lkey && b.mr->rkey == rkey && b.mr->addr == b.bytes + LEN && b.mr->length == 128);
	CHECK(written(&a, at + LEN, rkey, "the next") == IBV_WC_SUCCESS && !memcmp(b.bytes + LEN, "the next", 8));
	CHECK(written(&a, at, rkey, "outside.") == IBV_WC_REM_ACCESS_ERR && !memcmp(b.bytes, "it may. ", 8));
	connected(&a, &b, IBV_QPT_RC);
	/* Another domain, which the queue pair is not of; and back. */
	CHECK(!ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	CHECK(b.mr->pd == other && ibv_dealloc_pd(other) == EBUSY);
	CHECK(written(&a, at + LEN, rkey, "stranger") == IBV_WC_REM_ACCESS_ERR);
	connected(&a, &b, IBV_QPT_RC);
	CHECK(!ibv_rereg_mr(b.mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, b.pd, b.bytes, LEN, ALL));
	OK(ibv_dealloc_pd(other));
	CHECK(written(&a, at, rkey, "is back.") == IBV_WC_SUCCESS && !memcmp(b.bytes, "is back.", 8));
	/* What makes no sense leaves it as it is. */
#define LEFT(why, ...) \
	errno = 0; \
	CHECK(ibv_rereg_mr(b.mr, __VA_ARGS__) == IBV_REREG_MR_ERR_INPUT && errno == (why)); \
	CHECK(b.mr->pd == b.pd && b.mr->addr == b.bytes && b.mr->length == LEN && b.mr->rkey == rkey)
	LEFT(EINVAL, 1 << 3, NULL, NULL, 0, 0);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 8, 0);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, b.bytes, 0, 0);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, b.bytes, LEN, ALL);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1 << 15);
	LEFT(EOPNOTSUPP, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_ZERO_BASED);
	/* Another device's. */
	CHECK(a.context != b.context);
	LEFT(EINVAL, IBV_REREG_MR_CHANGE_PD, a.pd, NULL, 0, 0);
	CHECK(written(&a, at, rkey, "and on. ") == IBV_WC_SUCCESS && !memcmp(b.bytes, "and on. ", 8));
	OK(ibv_dereg_mr(b.mr));
	CHECK(written(&a, at, rkey, "too late") == IBV_WC_REM_ACCESS_ERR);
}

/* What becomes of one request, with an element of 8 bytes there and the peer's memory. */
static enum ibv_wc_status asked(struct end *end, struct end *peer, enum ibv_wr_opcode opcode, uint64_t at, uint32_t lkey)
{
	/* One of two, so that both have to be looked at. */
	struct ibv_sge sges[2] = { { (uintptr_t) end->bytes, 8, end->mr->lkey }, { at, 8, lkey } };
	struct ibv_send_wr wr = { .wr_id = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t) peer->bytes, peer->mr->rkey } };

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t) peer->bytes;
		wr.wr.atomic.rkey = peer->mr->rkey;
		wr.wr.atomic.compare_add = 1;
	}
	wr.sg_list = opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_SEND ? sges : sges + 1;
	wr.num_sge = sges + 2 - wr.sg_list;
	OK(posted(end, &wr));
	return done(end).status;
}

/* Requests of `end` that name an address at which nothing is: they fail, and nobody dies. */
static void nowhere(struct end *end, struct end *peer, uint64_t at, uint32_t lkey)
{
	const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_sge sge = { at, 16, lkey };
	struct ibv_recv_wr recv = { .wr_id = 2, .sg_list = &sge, .num_sge = 1 }, *bad;

	for (int which = 0; which < 4; which++) {
		connected(end, peer, IBV_QPT_RC);
		received(peer, 3);
		CHECK(asked(end, peer, opcodes[which], at, lkey) == IBV_WC_LOC_PROT_ERR);
	}
	connected(end, peer, IBV_QPT_RC);
	OK(ibv_post_recv(end->qp, &recv, &bad));
	CHECK(asked(peer, end, IBV_WR_SEND, (uintptr_t) peer->bytes, peer->mr->lkey) == IBV_WC_SUCCESS);
	CHECK(completion(end, peer).status == IBV_WC_LOC_PROT_ERR);
	connected(end, peer, IBV_QPT_RC);
}

/* A region of the whole address space. */
static void implicit(void)
{
	const int rights = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
	struct end a = begun(IBV_QPT_RC, 16, ALL, NULL), b = begun(IBV_QPT_RC, 16, ALL, NULL);
	size_t page = sysconf(_SC_PAGESIZE), len = 4 << 20;
	/* Pages that are born shared, and such as are not. */
	char *large = mmap(NULL, len, rights, kind, -1, 0), *small = mmap(NULL, 4 * page, rights, kind, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(b.pd, NULL, SIZE_MAX, ALL | IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND), *readable;
	struct ibv_mw *mw = ibv_alloc_mw(b.pd, IBV_MW_TYPE_2);
	char *const places[] = { large + 8, small + page, (char[64]) { 0 }, malloc(64), b.bytes };
	struct end all = b;
	struct ibv_sge sge;
	unsigned char there;
	uint32_t rkey;

	CHECK(mr && !mr->addr && mr->length == SIZE_MAX && mw && large != MAP_FAILED && small != MAP_FAILED);
	all.mr = mr;
	for (size_t at = 0; at < sizeof places / sizeof *places; at++) {
		char *place = (char *) (((uintptr_t) places[at] + 7) & -8);

		connected(&a, &b, IBV_QPT_RC);
		CHECK(written(&a, (uintptr_t) place, mr->rkey, "anywhere") == IBV_WC_SUCCESS && !memcmp(place, "anywhere", 8));
		all.bytes = place;
		/* Read, counted there, and sent from there. */
		CHECK(asked(&a, &all, IBV_WR_RDMA_READ, (uintptr_t) a.bytes + 8, a.mr->lkey) == IBV_WC_SUCCESS);
		CHECK(!memcmp(a.bytes, place, 8));
		memset(place, 0, 8);
		CHECK(asked(&a, &all, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t) a.bytes, a.mr->lkey) == IBV_WC_SUCCESS && *place == 1);
		memcpy(place, "outbound", 8);
		received(&a, 4);
		CHECK(asked(&b, &a, IBV_WR_SEND, (uintptr_t) place, mr->lkey) == IBV_WC_SUCCESS);
		CHECK(completion(&a, &b).byte_len == 16 && !memcmp(a.bytes + 512 + 8, "outbound", 8));
		/* What it reads itself comes there. */
		memcpy(a.bytes, "fetched.", 8);
		CHECK(asked(&b, &a, IBV_WR_RDMA_READ, (uintptr_t) place, mr->lkey) == IBV_WC_SUCCESS);
	}
	/* Mapped after it was registered, anew, for reading alone, and not any more. */
	for (int round = 0; round < 2; round++) {
		CHECK(mmap(small, page, rights, kind | MAP_FIXED, -1, 0) == small && !*small);
		CHECK(written(&a, (uintptr_t) small, mr->rkey, "anew....") == IBV_WC_SUCCESS && !memcmp(small, "anew....", 8));
	}
	CHECK(!mprotect(small, page, PROT_READ));
	CHECK(written(&a, (uintptr_t) small, mr->rkey, "readonly") == IBV_WC_REM_ACCESS_ERR && !memcmp(small, "anew....", 8));
	connected(&a, &b, IBV_QPT_RC);
	CHECK(asked(&b, &a, IBV_WR_RDMA_READ, (uintptr_t) small, mr->lkey) == IBV_WC_LOC_PROT_ERR);
	connected(&a, &b, IBV_QPT_RC);
	received(&a, 5);
	CHECK(asked(&b, &a, IBV_WR_SEND, (uintptr_t) small, mr->lkey) == IBV_WC_SUCCESS);
	OK(munmap(small, page));
	for (int which = 0; which < 4; which++) {
		const uint64_t holes[] = { (uintptr_t) small, 8, 1ull << 63, SIZE_MAX - 31 };

		connected(&a, &b, IBV_QPT_RC);
		CHECK(written(&a, holes[which], mr->rkey, "nowhere.") == IBV_WC_REM_ACCESS_ERR);
		connected(&a, &b, IBV_QPT_RC);
		all.bytes = (char *) (uintptr_t) holes[which];
		CHECK(asked(&a, &all, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t) a.bytes, a.mr->lkey) == IBV_WC_REM_ACCESS_ERR);
		nowhere(&b, &a, holes[which], mr->lkey);
	}
	/* A window over a part of it. */
	rkey = ibv_inc_rkey(mw->rkey);
	CHECK(bound(&b, mw, rkey, (uintptr_t) large + page, page, IBV_ACCESS_REMOTE_WRITE) != IBV_WC_SUCCESS);
	connected(&a, &b, IBV_QPT_RC);
	all.bytes = b.bytes;
	all.mr = mr;
	CHECK(bound(&all, mw, rkey, (uintptr_t) large + page, page, IBV_ACCESS_REMOTE_WRITE) == IBV_WC_SUCCESS);
	CHECK(written(&a, (uintptr_t) large + page, rkey, "windowed") == IBV_WC_SUCCESS && !memcmp(large + page, "windowed", 8));
	CHECK(written(&a, (uintptr_t) large, rkey, "outside.") == IBV_WC_REM_ACCESS_ERR);
	connected(&a, &b, IBV_QPT_RC);
	/* Pages that are to be used soon. */
	sge = (struct ibv_sge) { (uintptr_t) large + len / 2, page, mr->lkey };
	OK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	CHECK(!mincore(large + len / 2, page, &there) && there & 1);
	sge.addr = (uintptr_t) small;
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == EFAULT);
	OK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	/* Its rights are asked for. */
	readable = ibv_reg_mr(b.pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_REMOTE_READ);
	CHECK(readable);
	CHECK(written(&a, (uintptr_t) large, readable->rkey, "refused.") == IBV_WC_REM_ACCESS_ERR);
	/* It is registered anew like others, and all of it or a range. */
	CHECK(!ibv_rereg_mr(readable, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL | IBV_ACCESS_ON_DEMAND));
	connected(&a, &b, IBV_QPT_RC);
	CHECK(written(&a, (uintptr_t) large, readable->rkey, "granted.") == IBV_WC_SUCCESS && !memcmp(large, "granted.", 8));
	REFUSED(ibv_reg_mr(b.pd, NULL, SIZE_MAX, ALL), EINVAL);
	REFUSED(ibv_reg_mr(b.pd, NULL, page, ALL | IBV_ACCESS_ON_DEMAND), EINVAL);
	REFUSED(ibv_reg_mr_iova(b.pd, NULL, SIZE_MAX, page, ALL | IBV_ACCESS_ON_DEMAND), EINVAL);
	OK(ibv_dealloc_mw(mw));
	OK(ibv_dereg_mr(readable));
	OK(ibv_dereg_mr(mr));
	CHECK(written(&a, (uintptr_t) large, mr->rkey, "too late") == IBV_WC_REM_ACCESS_ERR);
}

/* Memory that is paged on demand. */
static void on_demand(void)
{
	struct end a = begun(IBV_QPT_RC, 16, ALL, NULL), b = begun(IBV_QPT_RC, 16, ALL, NULL);
	struct ibv_device_attr_ex device;
	size_t page = sysconf(_SC_PAGESIZE), len = 600 * page;
	char *bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *again;
	struct ibv_mr *mr, *readable;
	struct ibv_sge sge;
	struct ibv_recv_wr recv = { .wr_id = 30, .sg_list = &sge, .num_sge = 1 }, *bad;
	unsigned char there;

	OK(ibv_query_device_ex(a.context, NULL, &device));
	CHECK(device.odp_caps.general_caps == (IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT));
	CHECK(device.odp_caps.per_transport_caps.rc_odp_caps == 0x3f && device.odp_caps.per_transport_caps.ud_odp_caps == 0x23);
	CHECK(bytes != MAP_FAILED);
	mr = ibv_reg_mr(b.pd, bytes, len, ALL | IBV_ACCESS_ON_DEMAND);
	CHECK(mr);
	connected(&a, &b, IBV_QPT_RC);
	CHECK(written(&a, (uintptr_t) bytes + page, mr->rkey, "on deman") == IBV_WC_SUCCESS && !memcmp(bytes + page, "on deman", 8));
	/* Whatever is mapped there is what a peer reaches. */
	again = mmap(bytes + page, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(again == bytes + page && !*again);
	CHECK(written(&a, (uintptr_t) bytes + page, mr->rkey, "mapped a") == IBV_WC_SUCCESS && !memcmp(again, "mapped a", 8));
	/* And where nothing is, nothing. */
	CHECK(!munmap(bytes + 2 * page, page));
	CHECK(written(&a, (uintptr_t) bytes + 2 * page, mr->rkey, "nowhere.") == IBV_WC_REM_ACCESS_ERR);
	/* Pages that are to be used soon. */
	sge = (struct ibv_sge) { (uintptr_t) bytes + 5 * page, page, mr->lkey };
	CHECK(!mincore(bytes + 5 * page, page, &there) && !(there & 1));
	OK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	CHECK(!mincore(bytes + 5 * page, page, &there) && there & 1);
	OK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	OK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, &sge, 1));
	CHECK(ibv_advise_mr(b.pd, 9, 0, &sge, 1) == ENOTSUP);
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 1 << 4, &sge, 1) == EINVAL);
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 0) == EINVAL);
	CHECK(ibv_advise_mr(a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == ENOENT);
	sge.addr = (uintptr_t) bytes + 2 * page;
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1) == EFAULT);
	sge.addr = (uintptr_t) bytes + len - 1;
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EFAULT);
	sge.lkey = b.mr->lkey;
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == ENOENT);
	readable = ibv_reg_mr(b.pd, bytes, page, IBV_ACCESS_ON_DEMAND);
	CHECK(readable);
	sge = (struct ibv_sge) { (uintptr_t) bytes, 8, readable->lkey };
	CHECK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &sge, 1) == EPERM);
	OK(ibv_advise_mr(b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	nowhere(&b, &a, (uintptr_t) bytes + 2 * page, mr->lkey);
	/* A message takes the pages that its bytes go to, and no others of its RECV. */
	connected(&a, &b, IBV_QPT_RC);
	sge = (struct ibv_sge) { (uintptr_t) bytes + page, len - page, mr->lkey };
	OK(ibv_post_recv(b.qp, &recv, &bad));
	memcpy(a.bytes, "in a part of it", 16);
	CHECK(asked(&a, &b, IBV_WR_SEND, (uintptr_t) a.bytes + 8, a.mr->lkey) == IBV_WC_SUCCESS);
	CHECK(completion(&b, &a).status == IBV_WC_SUCCESS && !memcmp(bytes + page, "in a part of it", 16));
	CHECK(!mincore(bytes + 300 * page, page, &there) && !(there & 1));
	OK(ibv_dereg_mr(readable));
	OK(ibv_dereg_mr(mr));
}

int main(int argc, char **argv)
{
	const struct part parts[] = { { "rereg", rereg }, { "implicit", implicit }, { "on_demand", on_demand } };

	return run_part(parts, sizeof parts / sizeof *parts, argc, argv);
}
