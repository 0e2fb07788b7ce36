/*
 * Built with the headers of rdma-core 59: what is new there is not advertised, and refused with an error.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/verbs.h>

#define EXPECT(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "line %d: not %s (errno %d)\n", __LINE__, #what, errno); \
			return 1; \
		} \
	} while (0)

static char buffer[4096];

int main(void)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_port_attr port;
	struct ibv_device_attr_ex attr;
	struct ibv_dmah_init_attr hint = { 0 };
	struct ibv_mr_init_attr region = {
		.length = sizeof(buffer), .addr = buffer, .comp_mask = IBV_REG_MR_MASK_ADDR,
	};
	struct ibv_qp_init_attr_ex init = { 0 };
	struct ibv_send_wr request = { .opcode = IBV_WR_FLUSH }, *bad = NULL;
	struct ibv_pd *pd;
	struct ibv_qp *qp;

	EXPECT(devices && devices[0]);
	context = ibv_open_device(devices[0]);
	EXPECT(context);

	/* A port's attributes are longer. */
	memset(&port, 0xff, sizeof(port));
	EXPECT(ibv_query_port(context, 1, &port) == 0);
	EXPECT(port.state == IBV_PORT_ACTIVE && port.active_speed_ex == 0);

	EXPECT(ibv_query_device_ex(context, NULL, &attr) == 0);
	EXPECT(!(attr.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_FLUSH));

	pd = ibv_alloc_pd(context);
	EXPECT(pd);
	errno = 0;
	EXPECT(!ibv_reg_mr_ex(pd, &region) && errno == EOPNOTSUPP);
	errno = 0;
	EXPECT(!ibv_alloc_dmah(context, &hint) && errno == EOPNOTSUPP);
	errno = 0;
	EXPECT(!ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_FLUSH_GLOBAL) && errno);

	init.qp_type = IBV_QPT_RC;
	init.send_cq = init.recv_cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	EXPECT(init.send_cq);
	init.cap.max_send_wr = init.cap.max_recv_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	init.pd = pd;
	init.send_ops_flags = IBV_QP_EX_WITH_FLUSH;
	errno = 0;
	EXPECT(!ibv_create_qp_ex(context, &init) && errno == EOPNOTSUPP);

	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	qp = ibv_create_qp_ex(context, &init);
	EXPECT(qp);
	EXPECT(ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS) == 0);
	EXPECT(ibv_post_send(qp, &request, &bad) != 0 && bad == &request);

	EXPECT(ibv_destroy_qp(qp) == 0);
	EXPECT(ibv_destroy_cq(init.send_cq) == 0);
	EXPECT(ibv_dealloc_pd(pd) == 0);
	EXPECT(ibv_close_device(context) == 0);
	ibv_free_device_list(devices);
	puts("all is well");
	return 0;
}
