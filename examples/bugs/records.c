// Sends numbered records from one queue pair to another, and says how many were acknowledged.
//
// It has two bugs of a kind that no run on good hardware shows; docs/bugs.md finds them. `cc -DFIXED` builds it without them.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    RECORDS = 64,
    RECORD_BYTES = 256,
    // Requests that may be on their way.
    DEPTH = 8,
#ifdef FIXED
    SLOTS = DEPTH,
#else
    // "They are fast: four buffers will do." But a buffer is the device's until its request has completed.
    SLOTS = 4,
#endif
};

struct side {
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    char *memory;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static int acknowledged, in_flight;

static void *made(void *object, const char *what) {
    if (!object) {
        perror(what);
        exit(2);
    }
    return object;
}

static void done(int error, const char *what) {
    if (error) {
        fprintf(stderr, "%s: %s\n", what, strerror(error));
        exit(2);
    }
}

static struct side make_side(int slots) {
    struct side side;
    side.memory = made(calloc(slots, RECORD_BYTES), "memory");
    side.mr = made(ibv_reg_mr(pd, side.memory, slots * RECORD_BYTES, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
    side.cq = made(ibv_create_cq(context, RECORDS, NULL, NULL, 0), "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .send_cq = side.cq,
        .recv_cq = side.cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = RECORDS, .max_send_sge = 1, .max_recv_sge = 1},
    };
    side.qp = made(ibv_create_qp(pd, &init), "ibv_create_qp");
    return side;
}

static void connect_to(struct side *side, uint32_t other, union ibv_gid gid) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    done(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = other,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 1}},
    };
    done(ibv_modify_qp(side->qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
         "RTR");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    done(ibv_modify_qp(side->qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                           IBV_QP_MAX_QP_RD_ATOMIC),
         "RTS");
}

static void end(struct side *side) {
    done(ibv_destroy_qp(side->qp), "ibv_destroy_qp");
    done(ibv_destroy_cq(side->cq), "ibv_destroy_cq");
    done(ibv_dereg_mr(side->mr), "ibv_dereg_mr");
    free(side->memory);
}

static struct ibv_sge slot_of(struct side *side, int slot) {
    return (struct ibv_sge){(uintptr_t)(side->memory + slot * RECORD_BYTES), RECORD_BYTES, side->mr->lkey};
}

// Takes what has completed, and waits for at least one.
static void reap(struct side *sender) {
    struct ibv_wc wc[DEPTH];
    int count = 0;
    while (count == 0)
        count = ibv_poll_cq(sender->cq, DEPTH, wc);
    if (count < 0)
        done(EIO, "ibv_poll_cq");
#ifdef FIXED
    for (int i = 0; i < count; i++)
        if (wc[i].status != IBV_WC_SUCCESS) {
            fprintf(stderr, "record %d: %s\n", (int)wc[i].wr_id, ibv_wc_status_str(wc[i].status));
            exit(1);
        }
#endif
    // Also a request that failed completes. Whoever only counts takes it for acknowledged.
    acknowledged += count;
    in_flight -= count;
}

static void send_record(struct side *sender, int number) {
    while (in_flight == DEPTH)
        reap(sender);
    int slot = number % SLOTS;
    memset(sender->memory + slot * RECORD_BYTES, 'a' + number % 26, RECORD_BYTES);
    struct ibv_sge sge = slot_of(sender, slot);
    struct ibv_send_wr wr = {
        .wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad;
    done(ibv_post_send(sender->qp, &wr, &bad), "ibv_post_send");
    in_flight++;
}

int main(void) {
    struct ibv_device **devices = made(ibv_get_device_list(NULL), "ibv_get_device_list");
    if (!devices[0]) {
        fprintf(stderr, "there is no RDMA device\n");
        return 2;
    }
    context = made(ibv_open_device(devices[0]), "ibv_open_device");
    pd = made(ibv_alloc_pd(context), "ibv_alloc_pd");
    union ibv_gid gid;
    done(ibv_query_gid(context, 1, 0, &gid), "ibv_query_gid");

    struct side sender = make_side(SLOTS), receiver = make_side(RECORDS);
    connect_to(&sender, receiver.qp->qp_num, gid);
    connect_to(&receiver, sender.qp->qp_num, gid);
    for (int number = 0; number < RECORDS; number++) {
        struct ibv_sge sge = slot_of(&receiver, number);
        struct ibv_recv_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1}, *bad;
        done(ibv_post_recv(receiver.qp, &wr, &bad), "ibv_post_recv");
    }

    for (int number = 0; number < RECORDS; number++)
        send_record(&sender, number);
    while (in_flight > 0)
        reap(&sender);
    printf("%d records sent, %d acknowledged\n", RECORDS, acknowledged);

    // What the other side has in truth; a second after the last one nothing more comes.
    struct ibv_wc wc;
    int there = 0, right = 0;
    time_t last = time(NULL);
    while (there < RECORDS && time(NULL) < last + 2) {
        if (ibv_poll_cq(receiver.cq, 1, &wc) <= 0 || wc.status != IBV_WC_SUCCESS)
            continue;
        last = time(NULL);
        there++;
        right += receiver.memory[wc.wr_id * RECORD_BYTES] == 'a' + (int)wc.wr_id % 26;
    }
    printf("the other side has %d, %d of them right\n", there, right);
    end(&sender);
    end(&receiver);
    done(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
    done(ibv_close_device(context), "ibv_close_device");
    ibv_free_device_list(devices);
    return acknowledged == RECORDS ? 0 : 1;
}
