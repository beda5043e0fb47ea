//! A certificate that another writes, in a directory as the kubelet mounts it.

use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc, time::Duration};

use flock::tls::{CertificateMetrics, DirectoryKeeper, LeafResolver};
use rcgen::{CertificateParams, KeyPair};

use super::setup::eventually;

struct Pair {
    certificate: String,
    key: String,
}

fn pair(params: &CertificateParams) -> Pair {
    let key = KeyPair::generate().unwrap();
    Pair {
        certificate: params.self_signed(&key).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

fn valid() -> Pair {
    pair(&CertificateParams::new(vec!["flock.flock-system.svc".into()]).unwrap())
}

/// Writes a generation and swaps the link to it, as the kubelet does.
fn mount(directory: &Path, generation: &str, pair: &Pair) {
    let target = directory.join(generation);
    fs::create_dir(&target).unwrap();
    fs::write(target.join("tls.crt"), &pair.certificate).unwrap();
    fs::write(target.join("tls.key"), &pair.key).unwrap();
    symlink(generation, directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    for file in ["tls.crt", "tls.key"] {
        let _ = symlink(Path::new("..data").join(file), directory.join(file));
    }
}

fn serves(resolver: &Arc<LeafResolver>, pair: &Pair) -> bool {
    let expected = flock::tls::pem::one_certificate(pair.certificate.as_bytes()).unwrap();
    resolver
        .current()
        .is_some_and(|current| current.cert[0] == expected)
}

fn keeper(directory: &Path) -> DirectoryKeeper {
    DirectoryKeeper::new(directory.to_owned(), CertificateMetrics::default())
        .poll_every(Duration::from_millis(10))
}

#[tokio::test]
async fn a_swapped_link_is_noticed_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = keeper(directory.path());
    let (resolver, status) = (keeper.resolver(), keeper.status());
    tokio::spawn(keeper.run(std::future::pending()));
    for generation in ["..1", "..2", "..3"] {
        let pair = valid();
        mount(directory.path(), generation, &pair);
        eventually(|| serves(&resolver, &pair)).await;
    }
    let status = status.borrow().clone().unwrap();
    assert!(status.trusted && status.ca_not_after.is_none());
}

#[tokio::test]
async fn the_last_good_pair_serves_while_the_files_are_bad() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = keeper(directory.path());
    let resolver = keeper.resolver();
    let good = valid();
    mount(directory.path(), "..good", &good);
    tokio::spawn(keeper.run(std::future::pending()));
    eventually(|| serves(&resolver, &good)).await;

    let mut expired = CertificateParams::new(vec!["x".into()]).unwrap();
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let bad = [
        Pair {
            certificate: valid().certificate,
            key: valid().key,
        },
        Pair {
            certificate: "garbage".into(),
            key: valid().key,
        },
        Pair {
            certificate: String::new(),
            key: String::new(),
        },
        Pair {
            certificate: "-----BEGIN CERTIFICATE-----\n".repeat(40_000),
            key: valid().key,
        },
        pair(&expired),
    ];
    for (number, bad) in bad.iter().enumerate() {
        mount(directory.path(), &format!("..bad{number}"), bad);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(serves(&resolver, &good), "{number}");
    }
    fs::remove_file(directory.path().join("..data")).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(serves(&resolver, &good), "without files");

    let next = valid();
    mount(directory.path(), "..next", &next);
    eventually(|| serves(&resolver, &next)).await;
}

/// By a clock that is behind. What is served is good by any clock.
#[tokio::test]
async fn a_pair_that_is_not_valid_yet_waits_while_another_is() {
    let directory = tempfile::tempdir().unwrap();
    let keeper = keeper(directory.path());
    let resolver = keeper.resolver();
    let mut future = CertificateParams::new(vec!["flock.flock-system.svc".into()]).unwrap();
    future.not_before = rcgen::date_time_ymd(2400, 1, 1);
    let future = pair(&future);
    mount(directory.path(), "..first", &future);
    tokio::spawn(keeper.run(std::future::pending()));
    eventually(|| serves(&resolver, &future)).await;

    let good = valid();
    mount(directory.path(), "..good", &good);
    eventually(|| serves(&resolver, &good)).await;
    mount(directory.path(), "..next", &future);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(serves(&resolver, &good));
}
