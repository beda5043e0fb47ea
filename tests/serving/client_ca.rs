//! The file with the CAs of callers, as the kubelet mounts it.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use flock::tls::{CertificateMetrics, ClientCaKeeper};
use prometheus_client::registry::Registry;
use tokio::time::timeout;

use super::{
    callers::{is_let_in, requiring},
    client::PATIENCE,
    setup::{Server, eventually, new_ca},
};

/// Waits until it holds.
async fn once(mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async { while !holds().await {} };
    timeout(PATIENCE, waiting)
        .await
        .expect("it comes to hold in time");
}

/// Writes a generation and swaps the link to it, as the kubelet does.
fn mount(directory: &Path, generation: &str, text: &str) {
    let target = directory.join(generation);
    fs::create_dir(&target).unwrap();
    fs::write(target.join("ca.crt"), text).unwrap();
    symlink(generation, directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    let _ = symlink("..data/ca.crt", directory.join("ca.crt"));
}

/// A keeper of the directory's file, the server that asks it, and how often the file could not be used.
async fn keeping(directory: &Path) -> (Server, impl Fn() -> u64) {
    let mut registry = Registry::default();
    let metrics = CertificateMetrics::register(&mut registry);
    let keeper = ClientCaKeeper::open(directory.join("ca.crt"), Vec::new(), metrics)
        .await
        .unwrap();
    let keeper = keeper.poll_every(Duration::from_millis(10));
    let server = requiring(&keeper.verifier()).await;
    tokio::spawn(keeper.run(std::future::pending()));
    let failures = move || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("certificate_failures_total "));
        line.unwrap().parse().unwrap()
    };
    (server, failures)
}

#[tokio::test]
async fn other_cas_count_as_soon_as_the_link_to_their_file_is_swapped() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (new_ca(), new_ca());
    mount(directory.path(), "..1", &old.certificate_pem());
    let (server, _) = keeping(directory.path()).await;
    assert!(is_let_in(&server, &old).await && !is_let_in(&server, &new).await);

    let both = old.certificate_pem() + &new.certificate_pem();
    mount(directory.path(), "..2", &both);
    once(async || is_let_in(&server, &new).await).await;
    assert!(is_let_in(&server, &old).await, "in a rotation both are good");

    mount(directory.path(), "..3", &new.certificate_pem());
    once(async || !is_let_in(&server, &old).await).await;
    assert!(is_let_in(&server, &new).await);
}

#[tokio::test]
async fn the_last_good_cas_count_while_the_file_is_bad() {
    let directory = tempfile::tempdir().unwrap();
    let (good, next) = (new_ca(), new_ca());
    mount(directory.path(), "..good", &good.certificate_pem());
    let (server, failures) = keeping(directory.path()).await;
    let key = good.key_pem();
    for (number, bad) in ["", "garbage", key.as_str()].into_iter().enumerate() {
        let before = failures();
        mount(directory.path(), &format!("..bad{number}"), bad);
        eventually(|| failures() > before + 1).await;
        assert!(is_let_in(&server, &good).await, "{bad:?}");
        assert!(!is_let_in(&server, &next).await, "{bad:?}");
    }
    let before = failures();
    fs::remove_file(directory.path().join("..data")).unwrap();
    eventually(|| failures() > before + 1).await;
    assert!(is_let_in(&server, &good).await, "without a file");

    mount(directory.path(), "..next", &next.certificate_pem());
    once(async || is_let_in(&server, &next).await).await;
    assert!(!is_let_in(&server, &good).await);
}

#[tokio::test]
async fn a_file_that_is_bad_at_the_start_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.crt");
    let open = || ClientCaKeeper::open(path.clone(), Vec::new(), CertificateMetrics::default());
    let error = open().await.err().unwrap();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    let error = error.to_string();
    assert!(
        error.contains(path.to_str().unwrap()) && error.contains("mounted"),
        "{error}"
    );
    assert!(cause.contains("No such file"), "{cause}");
    fs::write(&path, "").unwrap();
    let error = open().await.err().unwrap().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    assert!(
        error.contains("empty") && error.contains("put the certificates of the CAs there"),
        "{error}"
    );
}
