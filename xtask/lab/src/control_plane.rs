//! The control plane's programs and their flags: what a production cluster sets, as far as one machine can.

use std::path::Path;

use anyhow::Result;

use crate::components::Components;
use crate::net;
use crate::options::Options;
use crate::pki::{Host, Pki, write_private};
use crate::service::Service;

/// What is written down of requests: everything is named, and writes to the objects that tests look at come
/// with their bodies.
const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1",
  "kind": "Policy",
  "omitStages": ["RequestReceived"],
  "rules": [
    {
      "level": "RequestResponse",
      "verbs": ["create", "update", "patch", "delete", "deletecollection"],
      "resources": [
        {"group": "", "resources": ["pods", "pods/status", "pods/binding", "nodes", "services", "persistentvolumes", "persistentvolumeclaims"]},
        {"group": "apps", "resources": ["replicasets", "replicasets/scale", "deployments", "deployments/scale"]},
        {"group": "coordination.k8s.io", "resources": ["leases"]}
      ],
      "omitManagedFields": true
    },
    {"level": "Metadata"}
  ]
}
"#;

/// The identity of each program besides the API server: its name, user and groups.
const CLIENTS: [(&str, &str, &[&str]); 3] = [
    ("kube-controller-manager", "system:kube-controller-manager", &[]),
    ("kube-scheduler", "system:kube-scheduler", &[]),
    ("kube-proxy", "system:kube-proxy", &[]),
];

/// The certificates of the API server.
pub(crate) fn issue_certificates(pki: &Pki) -> Result<()> {
    let mut hosts: Vec<Host> = [net::API_SERVER, net::KUBERNETES_SERVICE, [127, 0, 0, 1].into()]
        .map(|ip| Host::Ip(ip.into()))
        .into();
    hosts.extend(
        [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ]
        .map(|name| Host::Name(name.to_owned())),
    );
    pki.issue("apiserver", "kube-apiserver", &[], &hosts)?;
    // What the API server shows to kubelets, for logs and exec.
    pki.issue(
        "apiserver-kubelet-client",
        "kube-apiserver-kubelet-client",
        &["system:masters"],
        &[],
    )
}

pub(crate) fn etcd(components: &Components, run: &Path) -> Service {
    let args = vec![
        "--name=lab".to_owned(),
        format!("--data-dir={}", run.join("etcd").display()),
        format!("--listen-client-urls={}", net::ETCD_URL),
        format!("--advertise-client-urls={}", net::ETCD_URL),
        format!("--listen-peer-urls={}", net::ETCD_PEER_URL),
        format!("--initial-advertise-peer-urls={}", net::ETCD_PEER_URL),
        format!("--initial-cluster=lab={}", net::ETCD_PEER_URL),
        // The data is worth nothing after a crash of the machine, and a laptop's disk would set the pace.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
        // Benchmarks keep many objects.
        "--quota-backend-bytes=8589934592".to_owned(),
    ];
    Service::new("etcd", components.program("etcd"), args)
}

pub(crate) fn api_server(
    components: &Components,
    run: &Path,
    pki: &Pki,
    options: &Options,
) -> Result<Service> {
    let policy = run.join("audit-policy.json");
    write_private(&policy, AUDIT_POLICY)?;
    let file = |name: &str| pki.path(name).display().to_string();
    let mut args = vec![
        format!("--etcd-servers={}", net::ETCD_URL),
        format!("--secure-port={}", net::API_SERVER_PORT),
        "--bind-address=0.0.0.0".to_owned(),
        format!("--advertise-address={}", net::API_SERVER),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!(
            "--kubelet-client-certificate={}",
            file("apiserver-kubelet-client.crt")
        ),
        format!("--kubelet-client-key={}", file("apiserver-kubelet-client.key")),
        format!("--kubelet-certificate-authority={}", file("ca.crt")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", file("service-accounts.pub")),
        format!(
            "--service-account-signing-key-file={}",
            file("service-accounts.key")
        ),
        format!("--service-cluster-ip-range={}", net::SERVICES),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction,PodSecurity".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--audit-log-path={}", crate::audit_log_path(run).display()),
        format!("--audit-policy-file={}", policy.display()),
        // One file: tests read all of it.
        "--audit-log-maxsize=4096".to_owned(),
    ];
    args.extend(options.args_of("kube-apiserver"));
    Ok(Service::new(
        "kube-apiserver",
        components.program("kube-apiserver"),
        args,
    ))
}

/// The flags by which a program finds the API server, and by which it checks its own callers.
fn kubeconfig_flags(pki: &Pki, name: &str) -> Result<Vec<String>> {
    let (_, user, groups) = CLIENTS
        .into_iter()
        .find(|client| client.0 == name)
        .unwrap_or((name, name, &[]));
    let kubeconfig = pki.kubeconfig(user, groups)?.display().to_string();
    Ok([
        "kubeconfig",
        "authentication-kubeconfig",
        "authorization-kubeconfig",
    ]
    .map(|flag| format!("--{flag}={kubeconfig}"))
    .into())
}

/// Client limits that are no limit on one machine.
fn raised_limits(options: &Options) -> Vec<String> {
    if options.raised_limits {
        vec![
            "--kube-api-qps=2000".to_owned(),
            "--kube-api-burst=4000".to_owned(),
        ]
    } else {
        Vec::new()
    }
}

pub(crate) fn controller_manager(components: &Components, pki: &Pki, options: &Options) -> Result<Service> {
    let file = |name: &str| pki.path(name).display().to_string();
    let mut args = kubeconfig_flags(pki, "kube-controller-manager")?;
    args.extend([
        "--bind-address=127.0.0.1".to_owned(),
        "--leader-elect=false".to_owned(),
        "--use-service-account-credentials=true".to_owned(),
        format!(
            "--service-account-private-key-file={}",
            file("service-accounts.key")
        ),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--cluster-signing-cert-file={}", file("ca.crt")),
        format!("--cluster-signing-key-file={}", file("ca.key")),
    ]);
    if let Some(grace) = options.node_monitor_grace {
        args.push(format!("--node-monitor-grace-period={}ms", grace.as_millis()));
        args.push(format!("--node-monitor-period={}ms", (grace / 4).as_millis()));
    }
    args.extend(raised_limits(options));
    args.extend(options.args_of("kube-controller-manager"));
    Ok(Service::new(
        "kube-controller-manager",
        components.program("kube-controller-manager"),
        args,
    ))
}

pub(crate) fn scheduler(components: &Components, pki: &Pki, options: &Options) -> Result<Service> {
    let mut args = kubeconfig_flags(pki, "kube-scheduler")?;
    args.extend([
        "--bind-address=127.0.0.1".to_owned(),
        "--leader-elect=false".to_owned(),
    ]);
    args.extend(raised_limits(options));
    args.extend(options.args_of("kube-scheduler"));
    Ok(Service::new(
        "kube-scheduler",
        components.program("kube-scheduler"),
        args,
    ))
}

pub(crate) fn proxy(components: &Components, pki: &Pki, run: &Path, options: &Options) -> Result<Service> {
    let (_, user, groups) = CLIENTS[2];
    let config = run.join("kube-proxy.json");
    let text = serde_json::json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "bindAddress": "127.0.0.1",
        "healthzBindAddress": net::PROXY_HEALTH,
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": {"kubeconfig": pki.kubeconfig(user, groups)?},
        // These limits are the machine's, and may not be set from inside of a network namespace.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"minSyncPeriod": "100ms"},
    });
    write_private(&config, &text.to_string())?;
    let mut args = vec![
        format!("--config={}", config.display()),
        // One serves all nodes, because they share a network. It waits for its own node to exist.
        "--hostname-override=node-0".to_owned(),
    ];
    args.extend(options.args_of("kube-proxy"));
    Ok(Service::new("kube-proxy", components.program("kube-proxy"), args))
}

pub(crate) fn coredns(components: &Components, pki: &Pki, run: &Path, options: &Options) -> Result<Service> {
    let corefile = run.join("Corefile");
    // The usual file of a cluster, but with short-lived answers, so that tests see changes, and without
    // forwarding, as there is nobody to forward to.
    let text = format!(
        ".:53 {{
    bind {dns}
    errors
    ready {dns}:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 1
    }}
}}
",
        dns = net::DNS,
        kubeconfig = pki.kubeconfig("system:coredns", &[])?.display()
    );
    write_private(&corefile, &text)?;
    let mut args = vec![format!("-conf={}", corefile.display())];
    args.extend(options.args_of("coredns"));
    Ok(Service::new("coredns", components.program("coredns"), args))
}
