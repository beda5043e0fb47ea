//! Addresses and ports. Every lab has a network of its own, so they are the same in all of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The API server as its clients in the lab reach it.
pub(crate) const API_SERVER_URL: &str = "https://127.0.0.1:6443";
pub(crate) const API_SERVER_PORT: u16 = 6443;
/// The address that the API server announces: the `kubernetes` Service leads to it, so no loopback one.
pub(crate) const API_SERVER: Ipv4Addr = Ipv4Addr::new(10, 201, 255, 1);
/// CoreDNS; pods get it as their resolver without a Service in between.
pub(crate) const DNS: Ipv4Addr = Ipv4Addr::new(10, 201, 255, 53);
/// The addresses of Services.
pub(crate) const SERVICES: &str = "10.96.0.0/16";
/// The first address of [`SERVICES`], which the API server's own Service gets.
pub(crate) const KUBERNETES_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
pub(crate) const ETCD_URL: &str = "http://127.0.0.1:2379";
pub(crate) const ETCD_PEER_URL: &str = "http://127.0.0.1:2380";

/// Where kube-proxy says whether it has set up all Services.
pub(crate) const PROXY_HEALTH: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10256);

/// How many real nodes a lab can have: each takes a /24 of 10.201.0.0/16 for its pods.
pub(crate) const MAX_REAL_NODES: usize = 99;
/// How many fake nodes a lab can have: each takes a /22 of 10.128.0.0/9 below 10.200.0.0.
pub(crate) const MAX_FAKE_NODES: usize = 4_000;

/// The address of real node `index`.
pub(crate) fn real_node_ip(index: usize) -> IpAddr {
    Ipv4Addr::new(10, 201, 254, octet(10 + index)).into()
}

/// The /24 of the pods of real node `index`.
pub(crate) fn real_pod_cidr(index: usize) -> String {
    format!("10.201.{}.0/24", octet(index + 1))
}

/// The /22 of the pods of fake node `index`: room for a thousand pods on one node.
pub(crate) fn fake_pod_cidr(index: usize) -> String {
    format!("10.{}.{}.0/22", octet(128 + index / 64), octet(index % 64 * 4))
}

/// The address of fake node `index`; nothing answers there.
pub(crate) fn fake_node_ip(index: usize) -> IpAddr {
    Ipv4Addr::new(10, 202, octet(index / 250), octet(index % 250 + 1)).into()
}

/// Counts are checked against the limits above, so this never saturates.
fn octet(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_fake_nodes_share_addresses() {
        let cidrs: std::collections::HashSet<String> = (0..MAX_FAKE_NODES).map(fake_pod_cidr).collect();
        let ips: std::collections::HashSet<IpAddr> = (0..MAX_FAKE_NODES).map(fake_node_ip).collect();
        assert_eq!((cidrs.len(), ips.len()), (MAX_FAKE_NODES, MAX_FAKE_NODES));
        assert_eq!(fake_pod_cidr(65), "10.129.4.0/22");
    }
}
