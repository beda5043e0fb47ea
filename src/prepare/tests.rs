//! On a directory of this machine. What changes owners needs root, and says so where it is not.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use clap::Parser;
use rstest::rstest;
use tempfile::TempDir;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: PrepareArgs,
}

fn args(root: &Path, more: &[&str]) -> PrepareArgs {
    let root = format!("--root={}", root.display());
    let base = [
        "prepare",
        &root,
        "--namespace=default",
        "--namespace-uid=u-1",
        "--flock=db",
        "--ordinal=0",
    ];
    let volume = if more.iter().any(|arg| arg.starts_with("--volume")) {
        &[][..]
    } else {
        &["--volume=data"]
    };
    Line::parse_from([&base[..], volume, more].concat()).args
}

fn run(root: &Path, more: &[&str]) -> Result<BTreeMap<String, Act>, PrepareError> {
    prepare(&args(root, more), Timestamp::UNIX_EPOCH)
}

fn exit(result: Result<BTreeMap<String, Act>, PrepareError>) -> Exit {
    result
        .map(|acts| panic!("it was prepared: {acts:?}"))
        .unwrap_err()
        .exit()
}

const DATA: &str = "default_u-1/db/0/data";

fn is_root(root: &TempDir) -> bool {
    fs::metadata(root.path()).unwrap().uid() == 0
}

#[test]
fn a_member_gets_its_directories_and_a_passport_beside_them() {
    let root = TempDir::new().unwrap();
    let acts = run(root.path(), &["--volume=data", "--volume=wal"]).unwrap();
    assert!(acts.values().all(|act| *act == Act::Create));
    let member = root.path().join("default_u-1/db/0");
    assert_eq!(fs::metadata(member.join("data")).unwrap().mode() & 0o7777, 0o777);
    assert_eq!(fs::metadata(&member).unwrap().mode() & 0o7777, 0o700);
    let passport: Passport = serde_json::from_slice(&fs::read(member.join(PASSPORT)).unwrap()).unwrap();
    assert_eq!(passport.volumes.keys().collect::<Vec<_>>(), ["data", "wal"]);
}

#[test]
fn preparing_twice_changes_nothing() {
    let root = TempDir::new().unwrap();
    run(root.path(), &[]).unwrap();
    let passport = root.path().join("default_u-1/db/0").join(PASSPORT);
    let before = fs::metadata(&passport).unwrap();
    let acts = run(root.path(), &["--ran"]).unwrap();
    assert_eq!(acts["data"], Act::Own);
    let after = fs::metadata(&passport).unwrap();
    assert_eq!(
        (before.ino(), before.ctime_nsec()),
        (after.ino(), after.ctime_nsec())
    );
}

#[rstest]
#[case::user(&["--uid=1000", "--gid=1001"], (1000, 1001, 0o777))]
#[case::user_and_group(&["--uid=1000", "--gid=1001", "--fs-group=2000"], (1000, 2000, 0o2770))]
#[case::group(&["--fs-group=2000"], (0, 2000, 0o2770))]
fn a_fresh_directory_gets_its_owner(#[case] owner: &[&str], #[case] expected: (u32, u32, u32)) {
    let root = TempDir::new().unwrap();
    if !is_root(&root) {
        return;
    }
    run(root.path(), owner).unwrap();
    let found = fs::metadata(root.path().join(DATA)).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), expected);
}

#[test]
fn data_keeps_its_owner_unless_its_group_changes() {
    let root = TempDir::new().unwrap();
    if !is_root(&root) {
        return;
    }
    run(root.path(), &["--uid=7"]).unwrap();
    let data = root.path().join(DATA);
    fs::write(data.join("file"), "x").unwrap();
    fs::create_dir(data.join("sub")).unwrap();
    fs::write(data.join("sub/deep"), "x").unwrap();
    symlink("/etc/passwd", data.join("link")).unwrap();
    let outside = fs::metadata("/etc/passwd").unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(
        run(root.path(), &["--uid=8", "--ran"]).unwrap()["data"],
        Act::Keep
    );
    let kept = fs::metadata(&data).unwrap();
    assert_eq!(
        (kept.uid(), kept.mode() & 0o7777),
        (7, 0o700),
        "data is its program's"
    );

    run(root.path(), &["--fs-group=2000", "--ran"]).unwrap();
    for (path, mode) in [
        ("", 0o2770),
        ("sub", 0o2775),
        ("sub/deep", 0o664),
        ("file", 0o664),
    ] {
        let found = fs::metadata(data.join(path)).unwrap();
        assert_eq!(found.gid(), 2000, "{path:?}");
        assert_eq!(found.mode() & mode, mode, "{path:?} has {:o}", found.mode());
    }
    assert_eq!(fs::symlink_metadata(data.join("link")).unwrap().gid(), 2000);
    let now = fs::metadata("/etc/passwd").unwrap();
    assert_eq!(
        (now.gid(), now.mode()),
        (outside.gid(), outside.mode()),
        "the link's target is not touched"
    );

    fs::set_permissions(data.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    run(root.path(), &["--fs-group=2000", "--ran"]).unwrap();
    assert_eq!(
        fs::metadata(data.join("file")).unwrap().mode() & 0o777,
        0o600,
        "only once, on a mismatch of the root"
    );
}

#[rstest]
#[case::namespace("default_u-1")]
#[case::flock("default_u-1/db")]
#[case::member("default_u-1/db/0")]
#[case::volume("default_u-1/db/0/data")]
#[case::passport("default_u-1/db/0/.flock.json")]
fn a_symbolic_link_leads_nowhere(#[case] planted: &str) {
    let (root, elsewhere) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let link = root.path().join(planted);
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    for target in [elsewhere.path().to_owned(), "../../../..".into()] {
        symlink(&target, &link).unwrap();
        assert_eq!(exit(run(root.path(), &[])), Exit::Unsafe);
        assert_eq!(exit(run(root.path(), &["--data-lost", "--uid=1"])), Exit::Unsafe);
        fs::remove_file(&link).unwrap();
    }
    assert_eq!(
        fs::read_dir(elsewhere.path()).unwrap().count(),
        0,
        "something was made outside of the root"
    );
}

#[test]
fn a_file_in_the_way_is_no_directory() {
    let root = TempDir::new().unwrap();
    fs::write(root.path().join("default_u-1"), "").unwrap();
    assert_eq!(exit(run(root.path(), &[])), Exit::Unsafe);
}

#[rstest]
#[case::volume_moved_away(DATA)]
#[case::member_moved_away("default_u-1/db/0")]
#[case::disk_not_mounted("default_u-1")]
fn a_member_that_ran_does_not_start_blank(#[case] away: &str) {
    let root = TempDir::new().unwrap();
    run(root.path(), &[]).unwrap();
    fs::write(root.path().join(DATA).join("file"), "x").unwrap();
    run(root.path(), &["--ran"]).unwrap();
    let (from, to) = (root.path().join(away), root.path().join("away"));
    fs::rename(&from, &to).unwrap();
    assert_eq!(exit(run(root.path(), &["--ran"])), Exit::Blank);
    assert!(!from.exists(), "nothing may be made in its place");
    fs::rename(&to, &from).unwrap();
    assert_eq!(run(root.path(), &["--ran"]).unwrap()["data"], Act::Keep);
    fs::rename(&from, &to).unwrap();
    assert_eq!(
        run(root.path(), &["--ran", "--data-lost"]).unwrap()["data"],
        Act::Create
    );
}

#[test]
fn a_directory_that_was_emptied_holds_its_member_even_before_its_second_start() {
    let root = TempDir::new().unwrap();
    run(root.path(), &[]).unwrap();
    let file = root.path().join(DATA).join("file");
    fs::write(&file, "x").unwrap();
    fs::remove_file(&file).unwrap();
    assert_eq!(exit(run(root.path(), &["--ran"])), Exit::Blank);
}

#[test]
fn anothers_directory_is_refused() {
    let root = TempDir::new().unwrap();
    run(root.path(), &[]).unwrap();
    fs::create_dir(root.path().join("default_u-1/db/1")).unwrap();
    let passport = root.path().join("default_u-1/db/0").join(PASSPORT);
    fs::copy(passport, root.path().join("default_u-1/db/1").join(PASSPORT)).unwrap();
    let mut other = args(root.path(), &[]);
    other.ordinal = "1".parse().unwrap();
    let error = prepare(&other, Timestamp::UNIX_EPOCH).unwrap_err();
    assert_eq!(error.exit(), Exit::Foreign);
    assert!(error.to_string().contains("db-0"), "{error}");
}

#[test]
fn a_passport_that_cannot_be_read_is_not_overwritten() {
    let root = TempDir::new().unwrap();
    fs::create_dir_all(root.path().join(DATA)).unwrap();
    let passport = root.path().join("default_u-1/db/0").join(PASSPORT);
    fs::write(&passport, "{").unwrap();
    assert_eq!(exit(run(root.path(), &["--data-lost"])), Exit::Foreign);
    assert_eq!(fs::read(&passport).unwrap(), b"{");
}

#[test]
fn a_namespace_of_the_same_name_made_later_has_other_directories() {
    let root = TempDir::new().unwrap();
    run(root.path(), &[]).unwrap();
    fs::write(root.path().join(DATA).join("file"), "x").unwrap();
    let mut later = args(root.path(), &[]);
    later.namespace_uid = DnsLabel::parse("u-2").unwrap();
    assert_eq!(
        prepare(&later, Timestamp::UNIX_EPOCH).unwrap()["data"],
        Act::Create
    );
    assert_eq!(
        fs::read_dir(root.path().join("default_u-2/db/0/data"))
            .unwrap()
            .count(),
        0
    );
}

#[rstest]
#[case("--flock=..")]
#[case("--flock=a/b")]
#[case("--namespace-uid=../x")]
#[case("--volume=.flock.json")]
#[case("--volume=")]
#[case("--ordinal=00")]
#[case("--ordinal=-1")]
fn names_that_are_no_dns_labels_are_not_taken(#[case] bad: &str) {
    let all = [
        "prepare",
        "--root=/r",
        "--namespace=n",
        "--namespace-uid=u",
        "--flock=f",
        "--ordinal=0",
        "--volume=v",
    ];
    let flag = bad.split('=').next().unwrap();
    let line = all.iter().map(|arg| {
        if arg.starts_with(&format!("{flag}=")) {
            bad
        } else {
            *arg
        }
    });
    assert!(Line::try_parse_from(line).is_err());
}
