//! What is in an archive, and that it is always the same.

use std::collections::BTreeMap;
use std::io::Read;

use super::*;

fn image() -> Image {
    Image::new("example.com/hello:7")
        .dir("/tmp", 0o1777)
        .text("/etc/greeting", "hello\n")
        .symlink("/bin/sh", "busybox")
        .entrypoint(["/bin/sh", "-c", "true"])
        .user("65532:65532")
        .env("A", "b")
}

/// The files of an archive, by path.
fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(archive).entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!(
            (entry.header().mtime().unwrap(), entry.header().uid().unwrap()),
            (0, 0)
        );
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.insert(entry.path().unwrap().to_string_lossy().into_owned(), bytes);
    }
    files
}

fn blob(files: &BTreeMap<String, Vec<u8>>, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"]
        .as_str()
        .unwrap()
        .trim_start_matches("sha256:");
    let bytes = files[&format!("blobs/sha256/{digest}")].clone();
    assert_eq!(digest::hex(&bytes), digest);
    assert_eq!(descriptor["size"], bytes.len());
    bytes
}

#[test]
fn the_same_image_is_the_same_bytes() {
    assert_eq!(image().archive().unwrap(), image().archive().unwrap());
    assert_eq!(
        image().compressed().archive().unwrap(),
        image().compressed().archive().unwrap()
    );
}

#[test]
fn the_archive_leads_from_its_index_to_every_file() {
    let files_of_archive = files(&image().archive().unwrap());
    assert_eq!(
        files_of_archive["oci-layout"],
        br#"{"imageLayoutVersion":"1.0.0"}"#
    );
    let index: Value = serde_json::from_slice(&files_of_archive["index.json"]).unwrap();
    let described = &index["manifests"][0];
    assert_eq!(
        described["annotations"]["io.containerd.image.name"],
        "example.com/hello:7"
    );
    assert_eq!(described["annotations"]["org.opencontainers.image.ref.name"], "7");
    let manifest: Value = serde_json::from_slice(&blob(&files_of_archive, described)).unwrap();
    let config: Value = serde_json::from_slice(&blob(&files_of_archive, &manifest["config"])).unwrap();
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Env"], json!(["PATH=/bin:/usr/bin", "A=b"]));
    let layer = blob(&files_of_archive, &manifest["layers"][0]);
    assert_eq!(config["rootfs"]["diff_ids"][0], digest_of(&layer));
    let layer = files(&layer);
    assert_eq!(layer["etc/greeting"], b"hello\n");
    assert_eq!(
        layer.keys().collect::<Vec<_>>(),
        ["bin/sh", "etc/greeting", "tmp"]
    );
}

#[test]
fn a_compressed_layer_is_named_by_what_it_holds() {
    let files_of_archive = files(&image().compressed().archive().unwrap());
    let index: Value = serde_json::from_slice(&files_of_archive["index.json"]).unwrap();
    let manifest: Value = serde_json::from_slice(&blob(&files_of_archive, &index["manifests"][0])).unwrap();
    let config: Value = serde_json::from_slice(&blob(&files_of_archive, &manifest["config"])).unwrap();
    let mut layer = Vec::new();
    let compressed = blob(&files_of_archive, &manifest["layers"][0]);
    flate2::read::GzDecoder::new(&compressed[..])
        .read_to_end(&mut layer)
        .unwrap();
    assert_eq!(config["rootfs"]["diff_ids"][0], digest_of(&layer));
}

#[test]
fn short_names_are_of_the_default_registry() {
    for (short, full) in [
        ("flock:dev", "docker.io/library/flock:dev"),
        ("someone/flock:dev", "docker.io/someone/flock:dev"),
        ("lab.flock.dev/busybox:1", "lab.flock.dev/busybox:1"),
        ("localhost/flock:dev", "localhost/flock:dev"),
    ] {
        assert_eq!(super::full_name(short), full);
    }
}
