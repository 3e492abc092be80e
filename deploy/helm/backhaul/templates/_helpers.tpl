{{/* What hub.toml says. */}}
{{- define "backhaul.hubToml" -}}
{{- $text := required "hubToml: give the hub.toml that `backhaul-hub init` wrote, with --set-file hubToml=FILE" .Values.hubToml -}}
{{- $found := fromToml $text -}}
{{- if not (hasKey $found "nats") }}{{ fail (printf "hubToml: no hub.toml: %v" (get $found "Error" | default "it has no [nats]")) }}{{ end -}}
{{- if hasKey $found "standby" }}{{ fail "hubToml: the pods write [standby]; take it out" }}{{ end -}}
{{ toJson $found }}
{{- end }}

{{/* The port of a section that has to listen beyond loopback: (list $ "metrics"). */}}
{{- define "backhaul.port" -}}
{{- $section := get (include "backhaul.hubToml" (first .) | fromJson) (last .) | default dict -}}
{{- $listen := get $section "listen" | default "" -}}
{{- if not (hasPrefix "0.0.0.0:" $listen) }}{{ fail (printf "hubToml: [%s] listen = \"0.0.0.0:PORT\" is needed, it is %q" (last .) $listen) }}{{ end -}}
{{ trimPrefix "0.0.0.0:" $listen }}
{{- end }}

{{- define "backhaul.name" -}}
{{- if contains "backhaul" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-backhaul{{ end }}
{{- end }}

{{/* Labels: (list $ "hub"). */}}
{{- define "backhaul.selector" -}}
app.kubernetes.io/name: backhaul
app.kubernetes.io/instance: {{ (first .).Release.Name }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{- define "backhaul.labels" -}}
{{ include "backhaul.selector" . }}
app.kubernetes.io/version: {{ (first .).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (first .).Release.Service }}
helm.sh/chart: {{ (first .).Chart.Name }}-{{ (first .).Chart.Version }}
{{- end }}

{{- define "backhaul.image" -}}
{{- $ := first . }}{{ $.Values.image.prefix }}backhaul-{{ last . }}:{{ $.Values.image.tag | default $.Chart.AppVersion }}
{{- end }}

{{/* What every pod has: nobody's rights, no token of the cluster. */}}
{{- define "backhaul.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "backhaul.container" -}}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* On another machine than the others of its kind, where there is one. */}}
{{- define "backhaul.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "backhaul.selector" . | nindent 8 }}
{{- end }}

{{/* A hub directory with these logins and no key: (list $ "spark.creds" ...). */}}
{{- define "backhaul.hubDirectory" -}}
{{- $ := first . -}}
projected:
  defaultMode: 0440
  sources:
    - configMap: {name: {{ include "backhaul.name" $ }}-hub}
    - secret:
        name: {{ $.Values.secrets.tls }}
        items: [{key: ca.pem, path: tls/ca.pem}]
    - secret:
        name: {{ $.Values.secrets.creds }}
        items:
{{- range rest . }}
          - {key: {{ . }}, path: creds/{{ . }}}
{{- end }}
{{- end }}

{{/* A probe: (list "metrics" "/ready" 10 3), for a port, a path, seconds and failures. */}}
{{- define "backhaul.told" -}}
httpGet: {port: {{ first . }}, path: {{ index . 1 }}}
timeoutSeconds: 6
periodSeconds: {{ index . 2 }}
failureThreshold: {{ last . }}
{{- end }}
