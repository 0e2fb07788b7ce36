//! What others build on verbs: UCX and libfabric. Their tests look closer (`crates/shim/tests/it/ucx.rs`, `libfabric.rs`).

use super::row::{Meets, Row};

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![Row::alone("ucx-utils", "ucx_info", "-d").client_says(&[
        "#      Transport: rc_verbs\n#         Device: vervain0:1",
        "#      Transport: ud_verbs\n#         Device: vervain0:1",
    ])];
    for transport in ["rc_v", "ud_v"] {
        let variables = format!("UCX_TLS={transport} UCX_NET_DEVICES=vervain0:1");
        for test in [
            "tag_lat",
            "tag_bw",
            "ucp_am_lat",
            "stream_bw",
            "ucp_put_lat",
            "ucp_put_bw",
            "ucp_get",
        ] {
            for size in ["-s 8 -n 200", "-s 300000 -n 20"] {
                rows.push(perftest(&format!("-t {test} {size}"), &variables));
            }
        }
        for test in ["ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"] {
            rows.push(perftest(&format!("-t {test} -s 8 -n 200"), &variables));
        }
    }
    rows.push(
        Row::alone("libfabric-bin", "fi_info", "-p verbs").client_says(&["domain: vervain0\n"]),
    );
    rows.push(
        Row::by_manager(
            "libfabric-bin",
            "-p verbs -e msg -c -I 5",
            ("fi_pingpong", "-B {port}"),
            ("fi_pingpong", "-P {port} 127.0.0.1"),
        )
        .meets(Meets::Tcp)
        .says(&["MB/sec", "1m "], &["MB/sec", "1m "]),
    );
    rows
}

fn perftest(options: &str, variables: &str) -> Row {
    Row::by_tcp("ucx-utils", "ucx_perftest", &format!("{options} -w 10"))
        .with_variables(variables)
        .says(&["Final:"], &[])
}
