/*
 * Opens libibverbs as NCCL does: by dlopen, and its functions by dlvsym. Sends itself a message, and says what arrived.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#undef ibv_query_port
#undef ibv_reg_mr

static void *library;

static void *function(const char *name, const char *version)
{
	void *found = dlvsym(library, name, version);

	if (!found) {
		printf("%s, %s: %s\n", name, version, dlerror());
		exit(1);
	}
	return found;
}

#define GET(name, version) __typeof__(name) *my_##name = function(#name, version)

static void check(int is_well, const char *what)
{
	if (!is_well) {
		perror(what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	char room[64] = "", text[] = "by dlopen";
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_cq *cq;
	struct ibv_pd *pd;
	struct ibv_qp *qp;
	struct ibv_mr *mr, *to;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_wc wc;
	int count, done = 0;

	if (argc > 2) {
		/* Another library by its descriptor, whose number is the next one's. */
		int fd = open(argv[2], O_RDONLY);
		char path[64];

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		check(fd >= 0 && dlopen(path, RTLD_NOW), path);
		close(fd);
	}
	library = dlopen(argc > 1 ? argv[1] : "libibverbs.so", RTLD_NOW);
	check(library != NULL, "dlopen");
	check(dlvsym(library, "ibv_open_device", "IBVERBS_1.0") == NULL, "a version that we have not");
	GET(ibv_get_device_list, "IBVERBS_1.1");
	GET(ibv_get_device_name, "IBVERBS_1.1");
	GET(ibv_open_device, "IBVERBS_1.1");
	GET(ibv_query_port, "IBVERBS_1.1");
	GET(ibv_query_gid, "IBVERBS_1.1");
	GET(ibv_alloc_pd, "IBVERBS_1.1");
	GET(ibv_reg_mr, "IBVERBS_1.1");
	GET(ibv_reg_mr_iova2, "IBVERBS_1.8");
	GET(ibv_create_cq, "IBVERBS_1.1");
	GET(ibv_create_qp, "IBVERBS_1.1");
	GET(ibv_modify_qp, "IBVERBS_1.1");
	GET(ibv_wc_status_str, "IBVERBS_1.1");
	check(dlsym(library, "ibv_alloc_pd") == (void *)my_ibv_alloc_pd, "dlsym");

	list = my_ibv_get_device_list(&count);
	check(list && count == 1, "devices");
	printf("%s\n", my_ibv_get_device_name(list[0]));
	context = my_ibv_open_device(list[0]);
	check(context != NULL, "device");
	check(my_ibv_query_port(context, 1, (void *)&port) == 0, "port");
	check(my_ibv_query_gid(context, 1, 0, &gid) == 0, "GID");
	pd = my_ibv_alloc_pd(context);
	mr = my_ibv_reg_mr(pd, text, sizeof text, 0);
	to = my_ibv_reg_mr_iova2(pd, room, sizeof room, (uintptr_t)room, IBV_ACCESS_LOCAL_WRITE);
	cq = my_ibv_create_cq(context, 8, NULL, NULL, 0);
	check(mr && to && cq, "region or queue");
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	qp = my_ibv_create_qp(pd, &init);
	check(qp != NULL, "queue pair");
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = port.active_mtu, .dest_qp_num = qp->qp_num,
		.timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 12, .max_rd_atomic = 1, .max_dest_rd_atomic = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .hop_limit = 1 } },
	};
	check(my_ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0, "INIT");
	attr.qp_state = IBV_QPS_RTR;
	check(my_ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0, "RTR");
	attr.qp_state = IBV_QPS_RTS;
	check(my_ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			       IBV_QP_MAX_QP_RD_ATOMIC) == 0, "RTS");
	struct ibv_sge from_sge = { (uintptr_t)text, sizeof text, mr->lkey }, to_sge = { (uintptr_t)room, sizeof room, to->lkey };
	struct ibv_send_wr send = { .sg_list = &from_sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_recv_wr recv = { .sg_list = &to_sge, .num_sge = 1 }, *bad_recv;
	check(ibv_post_recv(qp, &recv, &bad_recv) == 0 && ibv_post_send(qp, &send, &bad_send) == 0, "posting");
	while (done < 2) {
		if (ibv_poll_cq(cq, 1, &wc) != 1)
			continue;
		printf("%s\n", my_ibv_wc_status_str(wc.status));
		done++;
	}
	printf("%s\n", room);
	return 0;
}
