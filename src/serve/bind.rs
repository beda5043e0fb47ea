//! Opens the ports.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use rustix::{io::Errno, net::sockopt};
use tokio::net::{TcpListener, TcpSocket};

/// As many connections as may wait to be accepted; what tokio's own `bind` has.
const BACKLOG: u32 = 1024;

/// A port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("failed to listen on {address}: is another process using the port?")]
pub struct BindError {
    /// Which address.
    pub address: SocketAddr,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Opens a port. `[::]` is every address that the machine has, be they of IPv6, of IPv4 or of both.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let bound = if address.is_ipv6() && address.ip().is_unspecified() {
        or_ipv4(both(address), address.port())
    } else {
        TcpListener::bind(address).await
    };
    bound.map_err(|source| BindError { address, source })
}

/// Listens on both families with one socket, which by itself it would do only where `net.ipv6.bindv6only` is 0.
fn both(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    listen(socket, address)
}

fn listen(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpListener> {
    // As `TcpListener::bind` does it: connections of a process that has just ended do not keep its port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The port on IPv4 alone, where the machine has no IPv6.
fn or_ipv4(bound: io::Result<TcpListener>, port: u16) -> io::Result<TcpListener> {
    match bound {
        Err(error) if has_no_ipv6(&error) => {
            listen(TcpSocket::new_v4()?, (Ipv4Addr::UNSPECIFIED, port).into())
        }
        bound => bound,
    }
}

/// `EAFNOSUPPORT` without the kernel's module, `EADDRNOTAVAIL` with it switched off.
fn has_no_ipv6(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)
    )
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use rstest::rstest;
    use tokio::net::TcpStream;

    use super::*;

    fn error(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.raw_os_error())
    }

    #[tokio::test]
    async fn every_address_is_of_both_families_where_there_are_both() {
        let listener = bind("[::]:0".parse().unwrap()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let connected = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await;
        let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
        assert_eq!(connected.is_ok(), has_ipv6, "{connected:?}");
    }

    #[rstest]
    #[case::no_module(Errno::AFNOSUPPORT)]
    #[case::switched_off(Errno::ADDRNOTAVAIL)]
    #[tokio::test]
    async fn without_ipv6_it_is_every_address_of_ipv4(#[case] errno: Errno) {
        let listener = or_ipv4(Err(error(errno)), 0).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(address.ip(), Ipv4Addr::UNSPECIFIED);
        TcpStream::connect((Ipv4Addr::LOCALHOST, address.port()))
            .await
            .unwrap();
    }

    #[rstest]
    #[case::both_families("[::]:0")]
    #[case::ipv4("0.0.0.0:0")]
    #[case::one_address("127.0.0.1:0")]
    #[tokio::test]
    async fn a_port_in_use_is_told(#[case] address: &str) {
        let mut address: SocketAddr = address.parse().unwrap();
        let first = bind(address).await.unwrap();
        address.set_port(first.local_addr().unwrap().port());
        let error = bind(address).await.unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
