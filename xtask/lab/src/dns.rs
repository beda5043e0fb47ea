//! Questions to the lab's own DNS.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;

use crate::net;

/// Asks CoreDNS, without remembering any answer. Only works on threads that are in the lab's network.
fn resolver() -> Result<TokioResolver> {
    let config = ResolverConfig::from_parts(
        None,
        Vec::new(),
        vec![NameServerConfig::udp_and_tcp(net::DNS.into())],
    );
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let options = builder.options_mut();
    options.cache_size = 0;
    options.ndots = 0;
    options.timeout = Duration::from_secs(2);
    builder.build().context("no DNS resolver could be made")
}

/// The data of the answer; none when the name does not exist.
fn records(answer: Result<Lookup, NetError>) -> Result<Vec<RData>, NetError> {
    match answer {
        Ok(lookup) => Ok(lookup
            .answers()
            .iter()
            .map(|record| record.data.clone())
            .collect()),
        Err(error) if error.is_no_records_found() || error.is_nx_domain() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The IPv4 addresses of `name`, sorted.
pub(crate) async fn lookup_a(name: &str) -> Result<Vec<IpAddr>> {
    let name = format!("{}.", name.trim_end_matches('.'));
    let answer = resolver()?.ipv4_lookup(name.as_str()).await;
    let records = records(answer).with_context(|| format!("the lab's DNS does not answer for {name}"))?;
    let mut addresses: Vec<IpAddr> = records.iter().filter_map(RData::ip_addr).collect();
    addresses.sort_unstable();
    Ok(addresses)
}

/// The names of `address`, sorted and without the final dot.
pub(crate) async fn lookup_ptr(address: IpAddr) -> Result<Vec<String>> {
    let answer = resolver()?.reverse_lookup(address).await;
    let records = records(answer).with_context(|| format!("the lab's DNS does not answer for {address}"))?;
    let mut names: Vec<String> = records
        .iter()
        .filter_map(|data| match data {
            RData::PTR(name) => Some(name.to_utf8().trim_end_matches('.').to_owned()),
            _ => None,
        })
        .collect();
    names.sort_unstable();
    Ok(names)
}
