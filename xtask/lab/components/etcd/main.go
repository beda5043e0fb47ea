// The etcd server as a program of its own: the server module of etcd has no main package that can be
// built from outside its own tree.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
