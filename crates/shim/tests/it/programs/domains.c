/* Parent domains and thread domains. */
#include "ends.h"

/* Parent domains and thread domains. */
static void domains(void)
{
	struct end end = begun(IBV_QPT_RC, 16, ALL, NULL);
	struct ibv_td_init_attr none = { 0 }, unknown = { 1 };
	struct ibv_td *td = ibv_alloc_td(end.context, &none);
	struct ibv_parent_domain_init_attr init = { .pd = end.pd, .td = td };
	struct ibv_pd *parent;
	struct ibv_mr *mr;
	struct ibv_cq_init_attr_ex cq = { .cqe = 16, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD };
	struct ibv_cq_ex *made_cq;

	CHECK(td && td->context == end.context);
	parent = ibv_alloc_parent_domain(end.context, &init);
	CHECK(parent && parent != end.pd && parent->context == end.context);
	CHECK(ibv_dealloc_td(td) == EBUSY);
	mr = ibv_reg_mr(parent, end.bytes, LEN, ALL);
	CHECK(mr && mr->pd == parent);
	CHECK(ibv_dealloc_pd(parent) == EBUSY);
	cq.parent_domain = parent;
	made_cq = ibv_create_cq_ex(end.context, &cq);
	CHECK(made_cq);
	OK(ibv_dereg_mr(mr));
	CHECK(ibv_dealloc_pd(parent) == EBUSY);
	OK(ibv_destroy_cq(ibv_cq_ex_to_cq(made_cq)));
	/* A parent domain stands for a protection domain: what is made with either goes together. */
	{
		struct end a = end, b = end;

		a.pd = parent;
		a.qp = made(&a, IBV_QPT_RC, NULL, 16, RC_OPS);
		b.mr = ibv_reg_mr(parent, b.bytes + LEN, LEN, ALL);
		connected(&a, &b, IBV_QPT_RC);
		CHECK(written(&a, (uintptr_t) b.bytes + LEN, b.mr->rkey, "together") == IBV_WC_SUCCESS);
		OK(ibv_destroy_qp(a.qp));
		OK(ibv_dereg_mr(b.mr));
	}
	REFUSED(ibv_alloc_td(end.context, &unknown), EINVAL);
	init.comp_mask = 1 << 2;
	REFUSED(ibv_alloc_parent_domain(end.context, &init), EINVAL);
	init = (struct ibv_parent_domain_init_attr) { .pd = parent };
	REFUSED(ibv_alloc_parent_domain(end.context, &init), EINVAL);
	init.pd = NULL;
	REFUSED(ibv_alloc_parent_domain(end.context, &init), EINVAL);
	cq.parent_domain = end.pd;
	REFUSED(ibv_create_cq_ex(end.context, &cq), EINVAL);
	OK(ibv_destroy_qp(end.qp));
	OK(ibv_dereg_mr(end.mr));
	CHECK(ibv_dealloc_pd(end.pd) == EBUSY);
	OK(ibv_dealloc_pd(parent));
	OK(ibv_dealloc_td(td));
	OK(ibv_dealloc_pd(end.pd));
}

int main(int argc, char **argv)
{
	const struct part parts[] = { { "domains", domains } };

	return run_part(parts, sizeof parts / sizeof *parts, argc, argv);
}
