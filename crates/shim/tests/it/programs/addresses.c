/* Groups, and the Ethernet addresses behind GIDs. */
#include "ends.h"

/* A member of a group that does not hear itself. */
static void group(void)
{
	struct end a = begun(IBV_QPT_UD, 16, ALL, NULL), b = begun(IBV_QPT_UD, 16, ALL, NULL);
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 1, 1, 1 } };
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = group, .hop_limit = 1 } };
	struct ibv_qp_init_attr_ex init = {
		.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_UD, .pd = a.pd, .cap = { 16, 16, 1, 1, 32 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS,
		.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
	};
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .num_sge = 1,
		.sg_list = &(struct ibv_sge) { (uintptr_t) "to all", 6, 0 }, .wr.ud = { NULL, 0xffffff, 7 } };
	struct ibv_wc wc;

	wr.wr.ud.ah = ibv_create_ah(a.pd, &to);
	CHECK(wr.wr.ud.ah);
	for (int blocks = 0; blocks < 2; blocks++) {
		init.create_flags = blocks ? IBV_QP_CREATE_BLOCK_SELF_MCAST_LB : 0;
		a.qp = ibv_create_qp_ex(a.context, &init);
		CHECK(a.qp);
		connected(&a, &b, IBV_QPT_UD);
		OK(ibv_attach_mcast(a.qp, &group, 0));
		OK(ibv_attach_mcast(b.qp, &group, 0));
		received(&a, 20);
		received(&b, 21);
		wr.wr_id = 22;
		OK(posted(&a, &wr));
		wc = completion(&b, &a);
		CHECK(wc.wr_id == 21 && wc.src_qp == a.qp->qp_num && !memcmp(b.bytes + 512 + 40, "to all", 6));
		wc = completion(&a, &b);
		if (!blocks) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			wc.wr_id += completion(&a, &b).wr_id - 20;
		}
		CHECK(wc.wr_id == 22 && wc.status == IBV_WC_SUCCESS);
		/* It has been where it would have been heard. */
		CHECK(!ibv_poll_cq(a.cq, 1, &wc));
		OK(ibv_detach_mcast(a.qp, &group, 0));
		OK(ibv_detach_mcast(b.qp, &group, 0));
		OK(ibv_destroy_qp(a.qp));
	}
	/* Only datagrams go to groups, and other flags are for other devices. */
	init.qp_type = IBV_QPT_RC;
	REFUSED(ibv_create_qp_ex(a.context, &init), EINVAL);
	init.qp_type = IBV_QPT_UD;
	init.create_flags |= IBV_QP_CREATE_SCATTER_FCS;
	REFUSED(ibv_create_qp_ex(a.context, &init), EOPNOTSUPP);
}

/* The Ethernet address behind a GID. */
static void ethernet(void)
{
	struct end end = begun(IBV_QPT_RC, 16, ALL, NULL);
	struct ibv_ah_attr to = { .is_global = 1, .port_num = 1, .grh = { .dgid = end.gid } };
	uint8_t mac[6] = { 1, 2, 3, 4, 5, 6 }, zeros[6] = { 0 };
	uint16_t vlan = 0;

	/* Loopback's. */
	OK(ibv_resolve_eth_l2_from_gid(end.context, &to, mac, &vlan));
	CHECK(!memcmp(mac, zeros, 6) && vlan == 0xffff);
	to.grh.sgid_index = 200;
	CHECK(ibv_resolve_eth_l2_from_gid(end.context, &to, mac, NULL) == EINVAL);
	to.grh.sgid_index = 0;
	to.port_num = 9;
	CHECK(ibv_resolve_eth_l2_from_gid(end.context, &to, mac, NULL) == EINVAL);
	to.port_num = 1;
	to.is_global = 0;
	CHECK(ibv_resolve_eth_l2_from_gid(end.context, &to, mac, NULL) == EINVAL);
	/* What belongs to another process is not there. */
	REFUSED(ibv_import_device(0), EOPNOTSUPP);
	REFUSED(ibv_import_pd(end.context, 0), EOPNOTSUPP);
	REFUSED(ibv_import_mr(end.pd, 0), EOPNOTSUPP);
	REFUSED(ibv_import_dm(end.context, 0), EOPNOTSUPP);
	REFUSED(ibv_alloc_null_mr(end.pd), EOPNOTSUPP);
	CHECK(ibv_query_qp_data_in_order(end.qp, IBV_WR_SEND, 0) == 0);
}

int main(int argc, char **argv)
{
	const struct part parts[] = { { "group", group }, { "ethernet", ethernet } };

	return run_part(parts, sizeof parts / sizeof *parts, argc, argv);
}
