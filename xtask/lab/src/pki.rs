//! The lab's certificate authority and the kubeconfigs that are made with it.

use std::fs::{self, File};
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};

use crate::net;

/// The authority of one lab, whose files are under `pki/` of the lab's folder.
#[derive(Debug)]
pub(crate) struct Pki {
    dir: PathBuf,
    kubeconfigs: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    ca_pem: String,
}

impl Pki {
    /// Makes a new authority, the key of service accounts, and the folder for both.
    pub(crate) fn create(run: &Path) -> Result<Self> {
        let dir = run.join("pki");
        let kubeconfigs = run.join("kubeconfigs");
        for folder in [&dir, &kubeconfigs] {
            fs::create_dir_all(folder).with_context(|| format!("{} could not be made", folder.display()))?;
        }
        let key = KeyPair::generate().context("no key could be made for the lab's authority")?;
        let ca_pem = ca_params()
            .self_signed(&key)
            .context("the lab's authority could not be made")?
            .pem();
        write_private(&dir.join("ca.crt"), &ca_pem)?;
        write_private(&dir.join("ca.key"), &key.serialize_pem())?;
        let accounts = KeyPair::generate().context("no key could be made for service accounts")?;
        write_private(&dir.join("service-accounts.key"), &accounts.serialize_pem())?;
        write_private(&dir.join("service-accounts.pub"), &accounts.public_key_pem())?;
        Ok(Self {
            dir,
            kubeconfigs,
            issuer: Issuer::new(ca_params(), key),
            ca_pem,
        })
    }

    /// Reads the authority of a lab that runs already.
    pub(crate) fn open(run: &Path) -> Result<Self> {
        let dir = run.join("pki");
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).with_context(|| format!("{} can't be read", path.display()))
        };
        let (ca_pem, key) = (read("ca.crt")?, read("ca.key")?);
        let key = KeyPair::from_pem(&key).context("the key of the lab's authority is damaged")?;
        // The parameters are the same for every lab, and only the name and the key matter for signing.
        let issuer = Issuer::new(ca_params(), key);
        Ok(Self {
            kubeconfigs: run.join("kubeconfigs"),
            dir,
            issuer,
            ca_pem,
        })
    }

    /// The path of a file of the authority's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes `NAME.crt` and `NAME.key` for a server, or a client when `hosts` is empty.
    pub(crate) fn issue(&self, name: &str, user: &str, groups: &[&str], hosts: &[Host]) -> Result<()> {
        let (certificate, key) = self.sign(user, groups, hosts)?;
        write_private(&self.path(&format!("{name}.crt")), &certificate)?;
        write_private(&self.path(&format!("{name}.key")), &key)
    }

    /// Certificate and key in PEM.
    fn sign(&self, user: &str, groups: &[&str], hosts: &[Host]) -> Result<(String, String)> {
        let failure = || format!("no certificate could be made for {user}");
        let key = KeyPair::generate().with_context(failure)?;
        let mut params = CertificateParams::default();
        let mut subject = DistinguishedName::new();
        for group in groups {
            subject.push(DnType::OrganizationName, *group);
        }
        subject.push(DnType::CommonName, user);
        params.distinguished_name = subject;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if !hosts.is_empty() {
            params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        for host in hosts {
            params.subject_alt_names.push(match host {
                Host::Ip(ip) => SanType::IpAddress(*ip),
                Host::Name(name) => SanType::DnsName(name.as_str().try_into().with_context(failure)?),
            });
        }
        let certificate = params.signed_by(&key, &self.issuer).with_context(failure)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// The kubeconfig of `user`, made when it is not there yet.
    pub(crate) fn kubeconfig(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        // Groups are part of who one is: another list makes another certificate.
        let mut name = user.replace([':', '/'], "-");
        for group in groups {
            name.push('_');
            name.push_str(&group.replace([':', '/'], "-"));
        }
        let path = self.kubeconfigs.join(format!("{name}.yaml"));
        if !path.is_file() {
            let (certificate, key) = self.sign(user, groups, &[])?;
            let config = kubeconfig(&self.ca_pem, user, &certificate, &key);
            // JSON is YAML, and needs no library to be written.
            write_private(&path, &format!("{config:#}\n"))?;
        }
        Ok(path)
    }
}

/// A name or address that a server's certificate is good for.
#[derive(Debug, Clone)]
pub(crate) enum Host {
    Ip(IpAddr),
    Name(String),
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, "flock-lab");
    params.distinguished_name = subject;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

fn kubeconfig(ca_pem: &str, user: &str, certificate: &str, key: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {
            "server": net::API_SERVER_URL,
            "certificate-authority-data": STANDARD.encode(ca_pem),
        }}],
        "users": [{"name": user, "user": {
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key),
        }}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        "current-context": "lab",
    })
}

/// Writes a file that only root may read: keys are in it.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("{} can't be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_that_is_read_again_signs_for_the_same_name() {
        let dir = tempfile::tempdir().unwrap();
        let made = Pki::create(dir.path()).unwrap();
        let admin = made.kubeconfig("admin", &["system:masters"]).unwrap();
        let text = fs::read_to_string(&admin).unwrap();
        let opened = Pki::open(dir.path()).unwrap();
        assert_eq!(opened.kubeconfig("admin", &["system:masters"]).unwrap(), admin);
        assert_eq!(
            fs::read_to_string(&admin).unwrap(),
            text,
            "an identity is made once"
        );
        assert_ne!(
            opened.kubeconfig("admin", &[]).unwrap(),
            admin,
            "without its group it is another one"
        );
    }
}
