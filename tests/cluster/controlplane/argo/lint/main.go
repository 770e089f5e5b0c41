// Argo's own offline lint as a program of its own: the argo command embeds a built user interface, which this does without.
package main

import (
	"fmt"
	"os"

	"github.com/argoproj/argo-workflows/v3/cmd/argo/lint"
	"github.com/argoproj/argo-workflows/v3/pkg/apiclient"
)

var kinds = []string{"workflows", "workflowtemplates", "cronworkflows", "clusterworkflowtemplates"}

func run(files []string) error {
	ctx, client, err := apiclient.NewClientFromOpts(apiclient.Opts{Offline: true, OfflineFiles: files})
	if err != nil {
		return err
	}
	options := lint.LintOptions{Files: files, Strict: true, DefaultNamespace: "default", Printer: os.Stdout}
	return lint.RunLint(ctx, client, kinds, "simple", true, options)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
